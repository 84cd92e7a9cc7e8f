"""Any module by autograd: which derivatives are trusted, what is watched, and what K-FAC is shown."""

import pytest
import torch
from torch import Tensor, nn

from geonpg.errors import require
from geonpg.kfac import FixedGaussian, NaturalGradient, TrustRegion
from geonpg.kfac.functional import Functional
from geonpg.kfac.network import Call, Network


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.BatchNorm1d(8), nn.GroupNorm(2, 8)], ids=str)
def test_a_head_of_zeros_does_not_vouch_for_nested_forward_mode(norm: nn.Module) -> None:
    """Along the head alone S is zero, right or wrong; later steps must not trust torch for that."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), norm, nn.Tanh(), nn.Linear(8, 2)).double()
    nn.init.zeros_(module[3].weight)
    nn.init.zeros_(module[3].bias)
    network, call = Network(module), Call((torch.randn(9, 4, dtype=torch.float64),))
    y, only_head = network.layout.read(), torch.zeros(network.layout.size, dtype=torch.float64)
    only_head[network.layout.spans["3.weight"]] = 1.0
    network.linearise(y, call).second(only_head)
    y, v, eps = y + 0.3 * torch.randn_like(y), 0.1 * torch.randn_like(y), 1e-3
    _, s = network.linearise(y, call).second(v)
    ahead, here, behind = (network.outputs(y + step * v, call) for step in (eps, 0.0, -eps))
    expected = (ahead + behind - 2 * here) / eps**2
    assert float((s - expected).norm()) < 1e-4 * float(expected.norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("activation", [nn.GELU(), nn.ReLU()], ids=str)
def test_what_torch_differentiates_rightly_is_trusted(activation: nn.Module, scale: float, dtype: torch.dtype) -> None:
    """Wherever it stands, and though among many cases some ReLU switches within the smallest difference."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 64), activation, nn.Linear(64, 64), activation, nn.Linear(64, 2), nn.Softmax(-1)]
    network, x = Network(nn.Sequential(*layers).to(dtype)), torch.randn(2000, 4, dtype=dtype)
    at = network.linearise(scale * network.layout.read(), Call((x,)))
    assert isinstance(at, Functional)
    assert network.trusts_nested(at)


def test_a_norm_is_not_trusted_in_a_network_whose_curvature_is_elsewhere() -> None:
    torch.manual_seed(0)
    deep = [layer for _ in range(6) for layer in (nn.Linear(16, 16), nn.Tanh())]
    network = Network(nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), *deep, nn.Linear(16, 2)))
    at = network.linearise(network.layout.read(), Call((torch.randn(50, 4),)))
    assert isinstance(at, Functional)
    assert not network.trusts_nested(at)


class Positive(nn.Module):
    """Of whose parameter only values near the one it has are legal."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 2), nn.Parameter(torch.tensor(1e-3))

    def forward(self, x: Tensor) -> Tensor:
        require(bool((self.scale > 0) & (self.scale < 2e-3)), "not a scale")
        return torch.sin(self.layer(x)) / self.scale


def test_a_module_that_is_not_defined_nearby_is_not_trusted() -> None:
    network = Network(Positive().double(), written_out=False)
    at = network.linearise(network.layout.read(), Call((torch.randn(50, 4, dtype=torch.float64),)))
    assert isinstance(at, Functional)
    assert not network.trusts_nested(at)


@pytest.mark.parametrize("last", [nn.Linear(2, 2), nn.Identity()], ids=str)
def test_a_closure_may_write_into_what_the_module_returned(last: nn.Module) -> None:
    """As a mask does: the metric is that of the module's own outputs."""
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), last), torch.randn(20, 3)
    optimizer = NaturalGradient(module, FixedGaussian())

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = module(x).mul_(3.0).square().mean()
        loss.backward()
        return loss

    _, flow = optimizer.flow(closure)
    assert torch.allclose(flow.at(flow.base).metric.linearisation.z, module(x), atol=1e-6)


def test_a_first_call_in_inference_mode() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(20, 3)
    optimizer = NaturalGradient(module, FixedGaussian())

    def closure() -> Tensor:
        optimizer.zero_grad()
        with torch.inference_mode():
            module(x)
        loss = (module(x) - 1).square().mean()
        loss.backward()
        return loss

    assert optimizer.step(closure) > optimizer.step(closure)


class Irregular(nn.Module):
    """Of its layers one is never called, one only without gradient, and one on rows and on sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3, 3), nn.Linear(3, 2)
        self.idle, self.frozen = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            shift = self.frozen(x)
        rows = torch.tanh(self.body(x)) + shift
        sequence = self.body(rows.unsqueeze(1).expand(-1, 4, -1)).mean(1)
        return self.head(torch.tanh(sequence))


def test_signals_of_layers_that_are_called_irregularly() -> None:
    torch.manual_seed(0)
    module, x = Irregular().double(), torch.randn(6, 3, dtype=torch.float64)
    network = Network(module, ["body", "head", "idle", "frozen"])
    at = network.linearise(network.layout.read(), Call((x,)))
    u = torch.randn_like(at.z)
    signals = at.signals(u)
    assert signals.keys() == {"body", "head"}
    assert [tuple(part.shape) for part in signals["body"]] == [(30, 3), (30, 3)]
    gradient = network.layout.named(at.pullback(u))
    for name, (a, d) in signals.items():
        torch.testing.assert_close(d.mT @ a, gradient[f"{name}.weight"])
        torch.testing.assert_close(d.sum(0), gradient[f"{name}.bias"])


class TwoScales(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filter, self.head = nn.Conv2d(1, 2, 2), nn.Linear(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.filter(x).mean((2, 3)) + self.filter(x[..., ::2, ::2]).mean((2, 3)))


def test_a_convolution_at_several_sizes_is_refused_with_a_way_out() -> None:
    torch.manual_seed(0)
    module, x = TwoScales(), torch.randn(10, 1, 6, 6)

    def closure() -> Tensor:
        module.zero_grad()
        loss = (module(x) - 1).square().mean()
        loss.backward()
        return loss

    with pytest.raises(ValueError, match=r"'filter' sees images of several sizes.*: use solver 'cg'"):
        NaturalGradient(module, FixedGaussian(), solver="pcg").step(closure)
    without = NaturalGradient(module, FixedGaussian(), solver="cg", control=TrustRegion(max_kl=0.1))
    assert without.step(closure) > without.step(closure)


class Shifted(nn.Module):
    """Standardises its inputs by statistics that need double precision, as those of a running average may."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(1e8 + 0.4, dtype=torch.float64))
        self.body = nn.Sequential(nn.Linear(1, 8), nn.LayerNorm(8) if norm else nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.body((x - self.mean).float())


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("solver", ["kfac", "pcg", "dense"])
def test_E3_buffers_keep_their_precision(solver: str, norm: bool) -> None:
    """Rounded to float32 the mean would be off by 0.4, and every input by as much as they differ."""
    torch.manual_seed(0)
    module, x = Shifted(norm), 1e8 + 0.4 + 0.3 * torch.randn(50, 1, dtype=torch.float64)
    optimizer = NaturalGradient(module, FixedGaussian(), rule="geo", solver=solver, control=TrustRegion(max_kl=0.02))
    for _ in range(3):
        with torch.no_grad():
            before = module(x)
        optimizer.step(lambda: squared(module, x))
        with torch.no_grad():
            kl = float(FixedGaussian().kl(before, module(x)).mean())
        assert optimizer.report.actual_kl == pytest.approx(kl, rel=1e-3)
        assert optimizer.report.actual_kl < 0.03


def squared(module: nn.Module, x: Tensor) -> Tensor:
    """A closure's work on the loss of a regression toward two."""
    module.zero_grad()
    loss = 0.5 * (module(x) - 2).square().sum(-1).mean()
    loss.backward()
    return loss


class Cube(torch.autograd.Function):
    """A function of a user's, in the style that torch.func refuses."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, u: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * u


class CubeOnce(Cube):
    """One whose backward pass cannot be differentiated."""

    backward = staticmethod(torch.autograd.function.once_differentiable(Cube.backward))


class Cubic(nn.Module):
    def __init__(self, cube) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.cube, self.second = nn.Linear(2, 4), cube, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.cube(self.first(x)))


@pytest.mark.parametrize("function", [Cube, CubeOnce])
def test_E6_a_function_without_forward_mode_has_the_derivatives_of_its_formula(function: type[Cube]) -> None:
    x = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ours, plain = (Network(Cubic(cube).double(), ["first", "second"]) for cube in (function.apply, lambda x: x**3))
    y = ours.layout.read()
    v, u = torch.randn_like(y), torch.randn(9, 2, dtype=torch.float64)
    at, truth = (network.linearise(y, Call((x,))) for network in (ours, plain))
    expected = [*truth.second(v), truth.pullback(u), truth.pullback_derivative(u, v)]
    for ours_, theirs in zip([*at.second(v), at.pullback(u), at.pullback_derivative(u, v)], expected, strict=True):
        assert float((ours_ - theirs).norm()) < 1e-4 * float(theirs.norm())


@pytest.mark.parametrize("solver", ["kfac", "pcg", "dense"])
@pytest.mark.parametrize("function", [Cube, CubeOnce])
def test_E6_steps_through_a_function_without_forward_mode(function: type[Cube], solver: str) -> None:
    module, x = Cubic(function.apply), torch.randn(30, 2)
    optimizer = NaturalGradient(module, FixedGaussian(), rule="geo", solver=solver, control=TrustRegion(max_kl=0.05))
    losses = [float(optimizer.step(lambda: squared(module, x))) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert optimizer.rejected == 0


class ByKeyword(nn.Module):
    def __init__(self, keyword: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image, self.head, self.keyword = nn.Conv2d(1, 2, 2), nn.Linear(8, 1), keyword

    def forward(self, x: Tensor) -> Tensor:
        if self.keyword:
            return self.head(input=torch.tanh(self.image(input=x)).flatten(1))
        return self.head(torch.tanh(self.image(x)).flatten(1))


def test_E14_layers_called_by_keyword_train_as_if_called_without() -> None:
    x, ends = torch.randn(20, 1, 3, 3), []
    for keyword in (False, True):
        module = ByKeyword(keyword)
        optimizer = NaturalGradient(module, FixedGaussian(), solver="kfac")
        for _ in range(3):
            optimizer.step(lambda module=module: squared(module, x))
        assert optimizer.rejected == 0
        ends.append(optimizer.geometry.network.layout.read())
    assert torch.equal(*ends)

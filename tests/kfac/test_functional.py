"""Any module by autograd: which derivatives are trusted, what is watched, and what K-FAC is shown."""

import pytest
import torch
from torch import Tensor, nn

from geonpg.kfac import FixedGaussian, NaturalGradient, TrustRegion
from geonpg.kfac.choice import require
from geonpg.kfac.functional import Call, Functional, Network


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

    start, _, flow = optimizer.flow(closure)
    assert torch.equal(flow.at(start).metric.at.z, module(x))


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

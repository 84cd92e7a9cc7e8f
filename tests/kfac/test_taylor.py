"""The written-out derivatives against torch.func, and both against plain autograd, in float64."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from geonpg.kfac import FixedGaussian, FreeLogStd, Gaussian, NaturalGradient
from geonpg.kfac.functional import Functional
from geonpg.kfac.linearisation import Linearisation
from geonpg.kfac.network import Call, Network
from geonpg.kfac.taylor import FeedForward

ACTIVATIONS = {
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "relu": nn.ReLU(),
    "relu in place": nn.ReLU(inplace=True),
    "elu": nn.ELU(),
    "elu, lower": nn.ELU(0.7),
    "softplus": nn.Softplus(),
    "identity": nn.Identity(),
}


def chain(activation: nn.Module, *last: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(6, 5, bias=False), activation)
    return nn.Sequential(nn.Linear(4, 6), activation, inner, nn.Linear(5, 3), *last).double()


def both(module: nn.Module, x: Tensor) -> tuple[Linearisation, Linearisation]:
    fast, slow = Network(module, ["0", "3"]), Network(module, ["0", "3"], written_out=False)
    y = fast.layout.read()
    return fast.linearise(y, Call((x,))), slow.linearise(y, Call((x,)))


LAST = {
    "several outputs": FreeLogStd(3),
    "one output": nn.Linear(3, 1),
    "one, bent": nn.Sequential(nn.Linear(3, 1), nn.Tanh()),
}


@pytest.fixture(params=product(ACTIVATIONS, LAST), ids=", ".join)
def pair(request: pytest.FixtureRequest) -> tuple[Linearisation, Linearisation, Tensor, Tensor]:
    activation, last = request.param
    module = chain(ACTIVATIONS[activation], LAST[last].double())
    x = 3 * torch.randn(7, 4, dtype=torch.float64)
    fast, slow = both(module, x)
    assert isinstance(fast, FeedForward)
    assert isinstance(slow, Functional)
    return fast, slow, torch.randn(fast.size, dtype=torch.float64), torch.randn_like(fast.z)


def test_both_paths_agree(pair: tuple[Linearisation, Linearisation, Tensor, Tensor]) -> None:
    fast, slow, v, u = pair
    assert torch.allclose(fast.z, slow.z, atol=1e-12)
    assert (fast.first(v) - slow.first(v)).abs().max() < 1e-10
    for written, automatic in zip(fast.second(v), slow.second(v), strict=True):
        assert (written - automatic).abs().max() < 1e-10
    assert (fast.pullback(u) - slow.pullback(u)).abs().max() < 1e-10
    assert (fast.pullback_derivative(u, v) - slow.pullback_derivative(u, v)).abs().max() < 1e-10


def test_layer_signals_agree(pair: tuple[Linearisation, Linearisation, Tensor, Tensor]) -> None:
    fast, slow, _, u = pair
    written, automatic = fast.signals(u), slow.signals(u)
    for name in ("0", "3"):
        for mine, theirs in zip(written[name], automatic[name], strict=True):
            assert (mine - theirs).abs().max() < 1e-10


def test_nothing_is_pulled_back_to_the_inputs_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """That product, with the widest layer's weight, has no use."""
    at, _ = both(chain(nn.Tanh()), torch.randn(7, 4, dtype=torch.float64))
    assert isinstance(at, FeedForward)
    v, u = torch.randn(at.size, dtype=torch.float64), torch.randn_like(at.z)
    monkeypatch.setattr(at.layers[0], "pull", None)
    monkeypatch.setattr(at.layers[0], "pull_derivative", None)
    at.pullback(u)
    at.pullback_derivative(u, v)
    assert list(at.signals(u)) == ["3", "2.0", "0"]


def test_algorithm_3_against_autograd() -> None:
    """d/dy (J^T u) v by two plain backward passes, through a network built without torch.func."""
    x, u = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Sigmoid()).double()
    network = Network(module)
    y, v = network.layout.read(), torch.randn(network.layout.size, dtype=torch.float64)
    gradient = torch.autograd.grad((module(x) * u).sum(), list(module.parameters()), create_graph=True)
    along = sum((g * d).sum() for g, d in zip(gradient, network.layout.split(v), strict=True))
    assert isinstance(along, Tensor)
    expected = network.layout.flatten(torch.autograd.grad(along, list(module.parameters())))
    written = network.linearise(y, Call((x,))).pullback_derivative(u, v)
    assert (written - expected).abs().max() < 1e-10


def test_derivatives_are_those_of_the_module() -> None:
    """R and S against central differences of the module itself."""
    module, x = chain(nn.Tanh()), torch.randn(4, 4, dtype=torch.float64)
    network = Network(module)
    y, v, eps = network.layout.read(), torch.randn(network.layout.size, dtype=torch.float64), 1e-4
    moved = []
    for shift in (eps, -eps, 0.0):
        network.layout.write(y + shift * v)
        moved.append(module(x).detach())
    r, s = network.linearise(y, Call((x,))).second(v)
    assert torch.allclose(r, (moved[0] - moved[1]) / (2 * eps), atol=1e-6)
    assert torch.allclose(s, (moved[0] + moved[1] - 2 * moved[2]) / eps**2, atol=1e-5)


def test_one_activation_object_used_throughout() -> None:
    """A module that stands twice in a Sequential is run twice."""
    tanh = nn.Tanh()
    module = nn.Sequential(nn.Linear(4, 5), tanh, nn.Linear(5, 5), tanh, nn.Linear(5, 2)).double()
    x = torch.randn(6, 4, dtype=torch.float64)
    at = Network(module).linearise(Network(module).layout.read(), Call((x,)))
    assert isinstance(at, FeedForward)
    assert torch.allclose(at.z, module(x))


class Recurrent(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


AWKWARD = {
    "layer norm": nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)),
    "batch norm": nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)),
    "batch norm, evaluating": nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU()).eval(),
    "group norm": nn.Sequential(nn.Flatten(0, 1), nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.Linear(8, 2)),
    "weight norm": nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
    "lstm": Recurrent(nn.LSTM(4, 4, batch_first=True)),
    "transformer": nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, activation="gelu", batch_first=True),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_modules_that_torch_differentiates_wrongly_or_not_at_all(name: str) -> None:
    """torch's own nested derivatives of several of these are wrong; ours agree with the outputs."""
    torch.manual_seed(0)
    module = AWKWARD[name].double()
    network, call = Network(module), Call((torch.randn(9, 3, 4, dtype=torch.float64),))
    y, v, eps = network.layout.read(), 0.05 * torch.randn(network.layout.size, dtype=torch.float64), 1e-3
    r, s = network.linearise(y, call).second(v)
    ahead, here, behind = (network.outputs(y + step * v, call) for step in (eps, 0.0, -eps))
    expected = (ahead + behind - 2 * here) / eps**2
    assert torch.allclose(r, (ahead - behind) / (2 * eps), atol=1e-5)
    assert float((s - expected).norm()) < 1e-4 * float(expected.norm())
    u = torch.randn_like(r)
    pulled = network.linearise(y, call).pullback(u)
    assert float(pulled @ v) == pytest.approx(float((u * r).sum()), rel=1e-8)
    bent = network.linearise(y, call).pullback_derivative(u, v)
    assert float(bent @ v) == pytest.approx(float((u * s).sum()), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("norm", [False, True])
def test_kinks_are_not_taken_for_curvature(norm: bool) -> None:
    """In single precision, differences of R would see thousands of ReLUs switch; S must not."""
    torch.manual_seed(0)
    middle: list[nn.Module] = [nn.LayerNorm(32)] if norm else []
    layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 32), *middle, nn.ReLU(), nn.Linear(32, 3)]
    single, x = nn.Sequential(*layers), torch.randn(64, 1, 8, 8)
    network = Network(single)
    v = torch.randn(network.layout.size)
    _, s = network.linearise(network.layout.read(), Call((x,))).second(v)
    network = Network(single.double())
    _, exact = network.linearise(network.layout.read(), Call((x.double(),))).second(v.double())
    assert float((s - exact).norm()) < 1e-3 * float(exact.norm())


def test_softplus_far_out() -> None:
    fast, slow = both(chain(nn.Softplus()), 60 * torch.randn(9, 4, dtype=torch.float64))
    v = torch.randn(fast.size, dtype=torch.float64)
    assert (fast.second(v)[1] - slow.second(v)[1]).abs().max() < 1e-9


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(self.layer(x))


def hooked() -> nn.Module:
    module = nn.Linear(4, 2)
    module.register_forward_hook(lambda *_: None)
    return nn.Sequential(module)


def hooked_chain() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 2), nn.Tanh())
    module.register_forward_hook(lambda _, args, z: 2 * z)
    return nn.Sequential(module, nn.Linear(2, 2))


def bias_first() -> nn.Module:
    """torch registers the weight anew, behind the bias."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    nn.utils.parametrize.remove_parametrizations(layer, "weight")
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight"]
    return nn.Sequential(layer, nn.Tanh())


shared = nn.Linear(4, 4)


@pytest.mark.parametrize(
    "module",
    [
        Residual(),
        nn.Sequential(nn.Linear(4, 2), nn.Softmax(-1)),
        nn.Sequential(nn.Linear(4, 2), nn.Softplus(beta=2)),
        nn.Sequential(shared, nn.Tanh(), shared),
        nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)),
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)),
        hooked(),
        hooked_chain(),
        bias_first(),
    ],
    ids=["residual", "softmax", "softplus beta", "shared", "layer norm", "weight norm", "hook", "chain", "bias first"],
)
def test_what_has_no_written_form_takes_the_other_path(module: nn.Module) -> None:
    module = module.double()
    network, x = Network(module), torch.randn(6, 4, dtype=torch.float64)
    y, eps = network.layout.read(), 1e-5
    at, v = network.linearise(y, Call((x,))), torch.randn(network.layout.size, dtype=torch.float64)
    assert isinstance(at, Functional)
    assert torch.allclose(at.z, module(x))
    ahead, behind = (network.outputs(y + step * v, Call((x,))) for step in (eps, -eps))
    assert torch.allclose(at.first(v), (ahead - behind) / (2 * eps), atol=1e-6)


def test_the_module_is_left_as_it_was() -> None:
    """Batch statistics, dropout's random stream and hooks are untouched by measuring the metric."""
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2)).double()
    network, x = Network(module, ["0", "3"]), torch.randn(6, 4, dtype=torch.float64)
    before, stream = {k: b.clone() for k, b in module.state_dict().items()}, torch.get_rng_state()
    at = network.linearise(network.layout.read(), Call((x,)))
    at.second(torch.randn(network.layout.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    at.signals(torch.ones_like(at.z))
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(torch.equal(b, before[k]) for k, b in module.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def test_dropout_is_left_out_of_the_metric() -> None:
    module = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 2)).double()
    network, x = Network(module), torch.randn(6, 4, dtype=torch.float64)
    y = network.layout.read()
    assert torch.allclose(network.outputs(y, Call((x,))), module.eval()(x))
    assert torch.allclose(network.linearise(y, Call((x,))).z, module.eval()(x))


class Normed(nn.Module):
    """A batch norm, which may be registered under two names, and two layers, which may share their weight."""

    def __init__(self, twice: bool, tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.middle, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        if tied:
            self.last.weight = self.middle.weight
        if twice:
            self.alias = self.norm

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.middle(self.norm(self.first(x)))))


def trained(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Parameters and buffers after some steps in training mode."""
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
    optimizer = NaturalGradient(module, FixedGaussian(), solver="pcg")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = 0.5 * (module(x) - 1).square().mean()
        loss.backward()
        return loss

    losses = [optimizer.step(closure) for _ in range(3)]
    assert losses[-1] < losses[0]
    assert optimizer.rejected == 0
    return [p.detach() for p in module.parameters()], list(module.buffers())


@pytest.mark.parametrize("tied", [False, True])
def test_a_module_under_two_names_trains_like_one_under_one(tied: bool) -> None:
    """SB3 registers a features extractor up to three times."""
    once, twice = Normed(False, tied), Normed(True, tied)
    for one, other in zip(trained(once), trained(twice), strict=True):
        assert len(one) == len(other)
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert twice.alias is twice.norm
    assert twice.norm._parameters.keys() == {"weight", "bias"}
    assert all(isinstance(p, nn.Parameter) for p in twice.norm._parameters.values())
    assert twice.norm._buffers.keys() == {"running_mean", "running_var", "num_batches_tracked"}
    assert int(twice.norm.num_batches_tracked) == 3


class Leaky(nn.ELU):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x, 0.3 * x)


class Doubled(nn.Softplus):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Tight(FreeLogStd):
    def forward(self, mean: Tensor) -> Tensor:
        return torch.cat([mean, 0.5 * self.log_std.expand_as(mean)], -1)


@pytest.mark.parametrize("activation", [Leaky(), Doubled()], ids=["elu", "softplus"])
def test_E11_a_subclass_of_an_activation_is_taken_at_its_word(activation: nn.Module) -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(2, 6), activation, nn.Linear(6, 1)).double(), torch.randn(50, 2).double()
    optimizer = NaturalGradient(module, FixedGaussian())
    assert optimizer.geometry.network.plan is None

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = 0.5 * (module(x) - x[:, :1]).square().mean()
        loss.backward()
        return loss

    with torch.no_grad():
        before = module(x)
    optimizer.step(closure)
    with torch.no_grad():
        kl = float(FixedGaussian().kl(before, module(x)).mean())
    assert optimizer.report.actual_kl == pytest.approx(kl, rel=1e-9)


def test_E11_a_subclass_of_the_free_log_std_has_no_exact_block() -> None:
    assert "exact" not in NaturalGradient(nn.Sequential(nn.Linear(1, 1), Tight(1)), Gaussian()).coverage()

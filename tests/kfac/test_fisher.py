"""K-FAC over a module: every parameter covered once, and the statistics those of the model."""

import math
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from geonpg.kfac import (
    Bernoulli,
    Categorical,
    FactorSettings,
    FixedGaussian,
    FreeLogStd,
    Gaussian,
    KroneckerFisher,
    Metric,
    NaturalGradient,
)
from geonpg.kfac.fisher import FactorMemory
from geonpg.kfac.flow import StepFailure
from geonpg.kfac.linearisation import Signals
from geonpg.kfac.network import Call, Network


class Odd(nn.Module):
    """Everything K-FAC has no Kronecker form for, beside two layers that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.cell = nn.GRUCell(4, 4)
        self.norm = nn.LayerNorm(4)
        self.grouped = nn.Conv1d(4, 4, 1)
        self.scale = nn.Parameter(torch.ones(4))
        self.tied = nn.Linear(4, 4)
        self.copy = nn.Linear(4, 4)
        self.copy.weight = self.tied.weight
        self.head = nn.Linear(4, 3)

    def forward(self, index: Tensor) -> Tensor:
        h = self.norm(self.cell(self.embedding(index)) * self.scale)
        h = self.grouped(h.unsqueeze(-1)).squeeze(-1)
        return self.head(torch.tanh(self.copy(self.tied(h))))


def test_every_parameter_is_covered_exactly_once() -> None:
    module = Odd()
    fisher = KroneckerFisher(module, Categorical(), FactorSettings())
    names = [name for block in fisher.blocks for name in block.names]
    assert names == fisher.layout.names
    covered = torch.zeros(fisher.layout.size)
    for block in fisher.blocks:
        covered[block.span] += 1
    assert bool((covered == 1).all())
    kinds = {name: block.kind for block in fisher.blocks for name in block.names}
    assert kinds["head.weight"] == kinds["head.bias"] == "Kronecker, Linear"
    assert {kinds[n] for n in ("embedding.weight", "norm.weight", "cell.weight_ih", "scale", "tied.weight")} == {
        "diagonal"
    }
    table = fisher.coverage().splitlines()
    assert len(table) == 1 + len(names)
    assert table[-1].split() == ["head.bias", "3", "Kronecker,", "Linear"]


def test_frozen_parameters_are_left_out() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    module[0].weight.requires_grad_(False)
    fisher = KroneckerFisher(module, FixedGaussian(), FactorSettings())
    assert [(b.names, b.kind) for b in fisher.blocks] == [
        (["0.bias"], "diagonal"),
        (["2.weight", "2.bias"], "Kronecker, Linear"),
    ]


def test_a_layer_whose_bias_comes_first_has_no_kronecker_block() -> None:
    """torch registers a weight anew, behind the bias, when its parametrization is removed."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    nn.utils.parametrize.remove_parametrizations(layer, "weight")
    extra = nn.Linear(2, 2)
    extra.register_parameter("scale", nn.Parameter(torch.ones(2)))
    fisher = KroneckerFisher(nn.Sequential(layer, extra), FixedGaussian(), FactorSettings())
    assert [(b.names, b.kind) for b in fisher.blocks] == [
        ([name], "diagonal") for name in ("0.bias", "0.weight", "1.weight", "1.bias", "1.scale")
    ]


class Idle(nn.Module):
    """A layer that the forward pass does not call, and one whose output has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.idle, self.frozen, self.head = nn.Linear(3, 4), nn.Conv2d(1, 1, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            shift = self.frozen(x.view(-1, 1, 1, 3).expand(-1, 1, 2, 3)).mean((1, 2, 3))
        return self.head(x + shift.unsqueeze(1))


@pytest.mark.parametrize("max_factor", [4096, 3])
@pytest.mark.parametrize("solver", ["kfac", "pcg"])
def test_layers_that_are_not_called_have_no_curvature_and_stay(solver: str, max_factor: int) -> None:
    torch.manual_seed(0)
    module, x = Idle(), torch.randn(30, 3)
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    factors = FactorSettings(max_factor=max_factor)
    optimizer = NaturalGradient(module, FixedGaussian(), solver=solver, factors=factors)
    losses = [optimizer.step(fit(module, x)) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert optimizer.rejected == 0
    moved = {name for name, p in module.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"head.weight", "head.bias"}
    for block, statistics in zip(optimizer.geometry.fisher.blocks, optimizer.memory.factors.statistics, strict=True):
        assert [tuple(s.shape) for s in statistics] == block.shapes
        assert any(s.any() for s in statistics) == ("head.weight" in block.names)


def linearised(module: nn.Module, layers: list[str], x: Tensor) -> Metric:
    network = Network(module, layers)
    return Metric(network.linearise(network.layout.read(), Call((x,))), Gaussian())


def test_exact_targets_give_the_exact_block_of_a_single_case() -> None:
    """With one case the inputs are constant, so each layer's block is A (x) D without approximation."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), FreeLogStd(2, -0.3)).double()
    fisher = KroneckerFisher(module, Gaussian(), FactorSettings(targets="exact"))
    metric = linearised(module, list(fisher.layers), torch.randn(1, 3, dtype=torch.float64))
    memory = fisher.remember(FactorMemory(), fisher.observe(metric.linearisation, torch.Generator()))
    g = metric.dense()
    for block, statistics in zip(fisher.blocks, memory.statistics, strict=True):
        exact = g[block.span, block.span]
        rows = torch.eye(len(exact), dtype=torch.float64)
        # a Kronecker block applies whatever factors it is given, a log std's knows its own
        applied = torch.stack([block.solve(statistics or block.invert((), 0.0), row) for row in rows])
        assert torch.allclose(applied, exact if statistics else exact.inverse(), atol=1e-12)


def test_the_signals_of_one_target_are_dropped_before_the_next_but_one() -> None:
    """With many outputs, all targets' signals together would not fit into memory."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 6)).double()
    fisher = KroneckerFisher(module, Gaussian(), FactorSettings(targets="exact"))
    at = linearised(module, list(fisher.layers), torch.randn(5, 3, dtype=torch.float64)).linearisation
    show, shown, alive = at.signals, list[weakref.ref[Tensor]](), list[int]()

    def signals(u: Tensor) -> Signals:
        alive.append(sum(gradient() is not None for gradient in shown))
        signals = show(u)
        shown.append(weakref.ref(signals["0"][1]))
        return signals

    at.signals = signals
    together = [torch.zeros(4, 4, dtype=torch.float64), torch.zeros(6, 6, dtype=torch.float64)]
    for u in Gaussian().fisher_root(at.z):
        for total, (_, d) in zip(together, reversed(show(u).values()), strict=True):
            total += d.mT @ d / len(d)
    observed = fisher.observe(at, torch.Generator())
    assert len(alive) == 6
    assert max(alive) <= 1
    for (_, gradients), expected in zip(observed, together, strict=True):
        torch.testing.assert_close(gradients, expected)


def test_sampled_targets_average_to_the_exact_ones() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8, 2)).double()
    x, family = torch.randn(50, 1, 4, 4, dtype=torch.float64), Bernoulli()
    exact = KroneckerFisher(module, family, FactorSettings(targets="exact"))
    sampled = KroneckerFisher(module, family, FactorSettings(averaging=0.9999))
    network, generator = Network(module, list(exact.layers)), torch.Generator().manual_seed(0)
    at = network.linearise(network.layout.read(), Call((x,)))
    memory = FactorMemory()
    for _ in range(400):
        memory = sampled.remember(memory, sampled.observe(at, generator))
    for truth, estimate in zip(exact.observe(at, generator), memory.statistics, strict=True):
        for t, e in zip(truth, estimate, strict=True):
            assert float((t - e).abs().max()) < 0.05 * float(t.abs().max())


@pytest.mark.parametrize("targets", ["sampled", "exact"])
def test_diagonal_blocks_estimate_the_diagonal(targets: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)).double()
    family = FixedGaussian()
    fisher = KroneckerFisher(module, family, FactorSettings(averaging=0.9999, targets=targets))
    network, generator = Network(module, list(fisher.layers)), torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, dtype=torch.float64)
    at = network.linearise(network.layout.read(), Call((x,)))
    memory = FactorMemory()
    for _ in range(400):
        memory = fisher.remember(memory, fisher.observe(at, generator))
    truth = Metric(at, family).dense().diagonal()
    for block, (estimate, *_) in zip(fisher.blocks[:2], memory.statistics, strict=False):
        assert torch.allclose(estimate, truth[block.span], rtol=0.2)


def test_a_block_that_cannot_be_inverted_keeps_its_last_good_inverse(caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Linear(3, 2)
    fisher = KroneckerFisher(module, FixedGaussian(), FactorSettings())
    good = [(torch.eye(4, dtype=torch.float64), torch.eye(2, dtype=torch.float64))]
    bad = [(-torch.eye(4, dtype=torch.float64), torch.eye(2, dtype=torch.float64))]
    memory = fisher.invert(FactorMemory(good), 0.01, torch.float32)
    kept = fisher.invert(FactorMemory(bad, memory.inverses), 0.01, torch.float32)
    assert kept.inverses[0] is memory.inverses[0]
    assert "last good inverse" in caplog.text
    with pytest.raises(StepFailure, match="cannot be inverted"):
        fisher.invert(FactorMemory(bad), 0.01, torch.float32)


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match="unknown Fisher targets 'empirical': choose one of sampled, exact"):
        FactorSettings(targets="empirical")
    with pytest.raises(ValueError, match="averaging must lie in"):
        FactorSettings(averaging=1.0)
    with pytest.raises(ValueError, match="update_every must be at least 1"):
        FactorSettings(update_every=0)


def fit(module: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """The closure of a step toward ones."""

    def closure() -> Tensor:
        module.zero_grad()
        loss = 0.5 * (module(x) - 1).square().sum(-1).mean()
        loss.backward()
        return loss

    return closure


def partly_trained(names: tuple[str, ...], solver: str, frozen: bool) -> tuple[nn.Module, list[float], str]:
    """A module, some of whose parameters were trained: the others frozen, or left out by `parameters`."""
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2)).double(), torch.randn(30, 2).double()
    for name, p in module.named_parameters():
        p.requires_grad_(not frozen or name in names)
    chosen = None if frozen else [module.get_parameter(name) for name in names]
    optimizer = NaturalGradient(module, FixedGaussian(), solver=solver, parameters=chosen)
    losses = [optimizer.step(fit(module, x)) for _ in range(3)]
    return module, losses, optimizer.coverage()


@pytest.mark.parametrize(
    "names", [("0.weight", "0.bias"), ("0.bias", "2.weight", "2.bias"), ("2.weight",)], ids="+".join
)
@pytest.mark.parametrize("solver", ["kfac", "pcg"])
def test_some_parameters_train_as_if_the_others_were_frozen(solver: str, names: tuple[str, ...]) -> None:
    """To the last bit; the others stay where they are, and need not be frozen."""
    (module, losses, coverage), other = (partly_trained(names, solver, frozen) for frozen in (False, True))
    torch.manual_seed(0)
    fresh = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    moved = {name for name, p in module.named_parameters() if not torch.equal(p, fresh.get_parameter(name))}
    assert moved == set(names)
    assert losses[-1] < losses[0]
    assert losses == other[1]
    assert coverage == other[2]
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), other[0].parameters(), strict=True))


def test_all_parameters_in_any_order_are_the_default() -> None:
    ends = []
    for explicit in (False, True):
        torch.manual_seed(0)
        module, x = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2)), torch.randn(30, 2)
        chosen = list(module.parameters())[::-1] if explicit else None
        optimizer = NaturalGradient(module, FixedGaussian(), parameters=chosen)
        ends.append([optimizer.step(fit(module, x)) for _ in range(3)])
    assert ends[0] == ends[1]


def test_a_parameter_of_another_module_is_refused() -> None:
    module = nn.Linear(1, 1)
    with pytest.raises(ValueError, match="parameter"):
        NaturalGradient(module, FixedGaussian(), parameters=[module.weight, nn.Linear(1, 1).weight])


def test_condition_numbers_are_those_of_the_damped_blocks() -> None:
    """Against numpy on the whole Kronecker product, in which damping is shared between the factors."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3, bias=False), nn.LayerNorm(3)]
    module, x = nn.Sequential(*layers, nn.Linear(3, 2)).double(), torch.randn(50, 1, 3, 3).double()
    optimizer = NaturalGradient(module, FixedGaussian(), damping=0.02, solver="kfac")
    assert optimizer.condition_numbers() == {}
    for _ in range(2):
        optimizer.step(fit(module, x))
    fisher, statistics = optimizer.geometry.fisher, optimizer.memory.factors.statistics
    expected = {}
    for name, block in fisher.layers.items():
        a, d = (factor.numpy() for factor in statistics[fisher.blocks.index(block)])
        pi, root = math.sqrt((np.trace(a) / len(a)) / (np.trace(d) / len(d))), math.sqrt(0.02)
        damped = np.kron(a + pi * root * np.eye(len(a)), d + root / pi * np.eye(len(d)))
        expected[name] = float(np.linalg.cond(damped))
    numbers = optimizer.condition_numbers()
    assert list(numbers) == ["0", "3", "5"]
    assert numbers == pytest.approx(expected, rel=1e-8)
    assert min(numbers.values()) > 1.5


class Borrowed(nn.Module):
    """Uses the weight of a layer without calling it; `called` once more by calling it."""

    def __init__(self, called: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.head, self.called = nn.Linear(3, 3), nn.Linear(3, 2), called

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(nn.functional.linear(x, self.inner.weight, self.inner.bias))
        return self.head(torch.tanh(self.inner(h)) if self.called else h)


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize("targets", ["sampled", "exact"])
def test_E9_a_weight_used_without_calling_its_layer_gets_a_true_diagonal(targets: str, called: bool) -> None:
    module, x = Borrowed(called).double(), torch.randn(40, 3).double()
    fisher = KroneckerFisher(module, FixedGaussian(), FactorSettings(averaging=0.9999, targets=targets))
    network, generator = Network(module, list(fisher.layers)), torch.Generator().manual_seed(0)
    at = network.linearise(network.layout.read(), Call((x,)))
    memory = FactorMemory()
    for _ in range(200):
        memory = fisher.remember(memory, fisher.observe(at, generator))
    kinds = {name: block.kind for block in fisher.blocks for name in block.names}
    assert kinds == {"inner.weight": "diagonal", "inner.bias": "diagonal"} | dict.fromkeys(
        ("head.weight", "head.bias"), "Kronecker, Linear"
    )
    assert [line.split()[2] for line in fisher.coverage().splitlines()[1:]] == ["diagonal"] * 2 + ["Kronecker,"] * 2
    truth = Metric(at, FixedGaussian()).dense().diagonal()[fisher.blocks[0].span]
    assert torch.allclose(memory.statistics[0][0], truth, rtol=0.35)


@pytest.mark.parametrize("solver", ["kfac", "pcg"])
def test_E9_training_with_a_borrowed_weight_goes_on_from_its_saved_state(solver: str) -> None:
    x, ends = torch.randn(40, 3), []
    for stops in (False, True):
        module = Borrowed(called=True)
        optimizer = NaturalGradient(module, FixedGaussian(), solver=solver)
        losses = [float(optimizer.step(fit(module, x))) for _ in range(3)]
        if stops:
            state, optimizer = optimizer.state_dict(), NaturalGradient(module, FixedGaussian(), solver=solver)
            optimizer.load_state_dict(state)
        losses += [float(optimizer.step(fit(module, x))) for _ in range(3)]
        assert losses[-1] < losses[0]
        assert "diagonal" in optimizer.coverage()
        ends.append(losses)
    assert ends[0] == ends[1]


def test_E9_a_state_of_before_the_weight_was_found_to_be_borrowed_still_loads() -> None:
    """Its factors for that layer were zero; they are forgotten, the others stay."""
    module, x = Borrowed(called=False), torch.randn(40, 3)
    optimizer = NaturalGradient(module, FixedGaussian(), solver="kfac")
    optimizer.step(fit(module, x))
    state = optimizer.state_dict()
    fresh = NaturalGradient(module, FixedGaussian(), solver="kfac")
    shapes = fresh.geometry.fisher.blocks[0].shapes
    for kept in ("statistics", "inverses"):
        state["state"][kept] = [tuple(map(torch.zeros, shapes)), *state["state"][kept][1:]]
    fresh.load_state_dict(state)
    assert fresh.step(fit(module, x)) > fresh.step(fit(module, x))
    assert fresh.rejected == 0
    assert bool(fresh.memory.factors.statistics[0][0].all())


def test_E9_layers_that_are_called_keep_their_kronecker_blocks() -> None:
    """Also where nothing of their gradient is left after the sum over cases: a bias before a norm has none."""
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 2, 2),
        nn.BatchNorm2d(2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(8, 4),
        nn.LayerNorm(4),
    ]
    module, x = nn.Sequential(*layers, nn.Linear(4, 2)), torch.randn(300, 1, 3, 3)
    optimizer = NaturalGradient(module, FixedGaussian(), solver="kfac")
    optimizer.step(fit(module, x))
    assert list(optimizer.geometry.fisher.layers) == ["0", "4", "6"]


class OneByOne(nn.Module):
    """Shows its convolution an image at a time, without a batch axis."""

    def __init__(self, batched: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.image, self.head, self.batched = nn.Conv2d(2, 3, 2), nn.Linear(12, 2), batched

    def forward(self, x: Tensor) -> Tensor:
        seen = self.image(x) if self.batched else torch.stack([self.image(case) for case in x])
        return self.head(torch.tanh(seen).flatten(1))


def test_E17_an_image_without_a_batch_axis_has_the_factors_of_one_with_it() -> None:
    x, found = torch.randn(6, 2, 3, 3, dtype=torch.float64), []
    for batched in (True, False):
        module = OneByOne(batched).double()
        fisher = KroneckerFisher(module, FixedGaussian(), FactorSettings(targets="exact"))
        network = Network(module, list(fisher.layers))
        at = network.linearise(network.layout.read(), Call((x,)))
        found.append(fisher.observe(at, torch.Generator()))
        assert list(fisher.layers) == ["image", "head"]
    for ours, theirs in zip(*found, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)

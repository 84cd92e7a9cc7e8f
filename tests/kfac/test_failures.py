"""The K-FAC failures that people have met elsewhere (MATH.md, section 4), one test each."""

import copy
import gc

import pytest
import torch
from small_flows import Surrogate, policy
from torch import Tensor, nn

from geonpg.kfac import Constant, FixedGaussian, Gaussian, LineSearch, NaturalGradient, TrustRegion


def parameters(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def squared_loss(module: nn.Module, x: Tensor, t: Tensor):
    def closure() -> Tensor:
        module.zero_grad()
        loss = 0.5 * (module(x) - t).square().mean()
        loss.backward()
        return loss

    return closure


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


@pytest.mark.parametrize("rule", ["ng", "geo"])
@pytest.mark.parametrize("solver", ["kfac", "pcg"])
def test_a_thousand_noisy_updates_stay_finite(rule: str, solver: str) -> None:
    """NaN after thousands of iterations: a policy driven by pure noise, in float32."""
    module = policy((3, 8), 2).float()
    optimizer = NaturalGradient(module, Gaussian(), rule=rule, solver=solver, damping=1e-3)
    generator = torch.Generator().manual_seed(0)
    for seed in range(1000 if solver == "kfac" else 200):
        problem = Surrogate(module, Gaussian(), torch.randn(32, 3, generator=generator), seed)
        optimizer.step(problem)
    assert bool(torch.isfinite(parameters(module)).all())
    assert optimizer.rejected < 5


@pytest.mark.parametrize(
    "x", [torch.zeros(20, 3), torch.ones(20, 3), 1e-30 * torch.rand(20, 3)], ids=["0", "1", "tiny"]
)
def test_degenerate_batches_at_the_start(x: Tensor) -> None:
    """`eigh` failing to converge at the start: factors of rank zero and one."""
    module = small()
    optimizer = NaturalGradient(module, FixedGaussian(), solver="kfac")
    for _ in range(3):
        optimizer.step(squared_loss(module, x, torch.ones(20, 1)))
    assert optimizer.rejected == 0
    assert bool(torch.isfinite(parameters(module)).all())


def test_large_layers_do_not_explode() -> None:
    """A factor of 60,000 inputs would take 29 GB; it is kept as a diagonal."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(60_000, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = NaturalGradient(module, FixedGaussian(), solver="kfac", control=TrustRegion(max_kl=0.1))
    x = torch.randn(16, 60_000) / 250
    losses = [optimizer.step(squared_loss(module, x, torch.ones(16, 1))) for _ in range(4)]
    assert losses[-1] < losses[0]
    kept = sum(s.numel() for statistics in optimizer.memory.factors.statistics for s in statistics)
    assert kept < 61_000


def test_training_can_stop_and_go_on() -> None:
    """A second call of `learn()`: new data, new batch size, a pause in between."""
    module = small()
    optimizer = NaturalGradient(module, FixedGaussian())
    for cases in (20, 50, 1):
        x = torch.randn(cases, 3)
        for _ in range(3):
            optimizer.step(squared_loss(module, x, torch.ones(cases, 1)))
    assert optimizer.rejected == 0


@pytest.mark.parametrize("damping", [0.0, 1e-12])
@pytest.mark.parametrize("solver", ["kfac", "pcg", "cg"])
def test_tiny_damping(damping: float, solver: str) -> None:
    module = small()
    optimizer = NaturalGradient(module, FixedGaussian(), solver=solver, damping=damping)
    x = torch.randn(5, 3)  # fewer cases than parameters: every factor is singular
    losses = [optimizer.step(squared_loss(module, x, torch.ones(5, 1))) for _ in range(20)]
    assert bool(torch.isfinite(parameters(module)).all())
    assert losses[-1] < 0.2 * losses[0]
    assert optimizer.rejected <= 1


@pytest.mark.parametrize("scale", [1e7, 1e-7, 1e14])
def test_targets_of_any_scale(scale: float) -> None:
    """Unnormalised rewards: a value loss of 1e14 and more."""
    module = small()
    optimizer = NaturalGradient(module, FixedGaussian(), rule="ng", solver="kfac", control=LineSearch(), damping=0.1)
    x = torch.randn(50, 3)
    losses = [optimizer.step(squared_loss(module, x, scale * torch.ones(50, 1))) for _ in range(20)]
    assert losses[-1] < 0.1 * losses[0]
    assert bool(torch.isfinite(parameters(module)).all())
    assert optimizer.rejected == 0


def test_state_keeps_its_dtype_after_load() -> None:
    """torch casts an optimiser's float state to the parameters' dtype on load; factors are float64."""
    module = small()
    optimizer = NaturalGradient(module, FixedGaussian())
    x = torch.randn(20, 3)
    optimizer.step(squared_loss(module, x, torch.ones(20, 1)))
    state = copy.deepcopy(optimizer.state_dict())
    fresh = NaturalGradient(small(), FixedGaussian())
    fresh.load_state_dict(state)
    statistics, inverses = fresh.memory.factors.statistics[0], fresh.memory.factors.inverses[0]
    assert {s.dtype for s in statistics} == {torch.float64}
    assert {s.dtype for s in inverses} == {torch.float32}


@pytest.mark.parametrize("rule", ["ng", "mid", "geo", "geof"])
@pytest.mark.parametrize("poison", ["inputs", "loss"])
def test_non_finite_numbers_never_reach_the_parameters(
    rule: str, poison: str, caplog: pytest.LogCaptureFixture
) -> None:
    module = small()
    optimizer = NaturalGradient(module, FixedGaussian(), rule=rule, damping=0.01)
    x, t = torch.randn(20, 3), torch.ones(20, 1)
    optimizer.step(squared_loss(module, x, t))
    before, memory = parameters(module), optimizer.memory
    bad = torch.full_like(x, float("nan")) if poison == "inputs" else x
    optimizer.step(squared_loss(module, bad, t if poison == "inputs" else t * float("inf")))
    assert torch.equal(parameters(module), before)
    assert optimizer.rejected == 1
    assert optimizer.memory is memory
    assert optimizer.damping == pytest.approx(0.1)
    assert "step 2 rejected: the gradient is not finite; damping is now 0.1" in caplog.text
    for _ in range(15):
        optimizer.step(squared_loss(module, x, t))
    assert optimizer.damping == pytest.approx(0.01)
    assert optimizer.rejected == 1


def test_non_finite_factors_are_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """Inputs whose square overflows: the gradient is finite, the factor is not."""
    module = nn.Linear(1, 1)
    optimizer = NaturalGradient(module, FixedGaussian(), solver="kfac")
    before = parameters(module)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = 1e-30 * module(torch.full((4, 1), 1e20)).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert torch.equal(parameters(module), before)
    assert "the Fisher factors are not finite" in caplog.text


def test_a_step_that_ends_outside_the_numbers_is_rejected() -> None:
    module = small()
    optimizer = NaturalGradient(module, FixedGaussian(), lr=1e30, control=Constant(), damping=0.0, rule="geo")
    before = parameters(module)
    optimizer.step(squared_loss(module, torch.randn(20, 3), 1e18 * torch.ones(20, 1)))
    assert torch.equal(parameters(module), before)
    assert optimizer.rejected == 1


def tensors_alive() -> tuple[int, int]:
    """How many tensors there are, and how many numbers they hold; `tracemalloc` does not see those."""
    gc.collect()
    alive = [x for x in gc.get_objects() if issubclass(type(x), Tensor)]
    return len(alive), sum(x.numel() for x in alive)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("rule", ["ng", "mid", "geo", "geof"])
def test_memory_does_not_grow_with_updates(rule: str, norm: bool) -> None:
    module = nn.Sequential(small(), nn.LayerNorm(1)) if norm else small()
    optimizer = NaturalGradient(module, FixedGaussian(), rule=rule)
    closure = squared_loss(module, torch.randn(20, 3), torch.ones(20, 1))
    for _ in range(3):
        optimizer.step(closure)
    early = tensors_alive()
    for _ in range(10):
        optimizer.step(closure)
    assert tensors_alive() == early

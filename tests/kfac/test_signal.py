"""The share of a step that fresh batches leave it, and the steps that an optimiser makes of it."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from geonpg.kfac import FactorSettings, FixedGaussian, NaturalGradient, TrustRegion
from geonpg.kfac.signal import LEAST_SHARE, RATE, Signal


def heard(descents: list[float]) -> Signal:
    signal = Signal()
    for descent in descents:
        signal = signal.heard(descent)
    return signal


def test_descent_keeps_the_full_step_and_ascent_takes_it_away() -> None:
    assert heard([2.0] * 50).share == 1
    assert heard([-2.0] * 10).log_share == pytest.approx(-10 * RATE)
    assert heard([-2.0] * 1000).share == pytest.approx(LEAST_SHARE)
    assert heard([-2.0] * 1000 + [2.0] * 100).share == 1


def test_the_unit_does_not_matter() -> None:
    descents = list(np.random.default_rng(0).normal(size=50))
    assert heard(descents).share == pytest.approx(heard([1e6 * x for x in descents]).share)


@pytest.mark.parametrize("nothing", [0.0, math.nan, math.inf, 1e200])
def test_what_tells_nothing_changes_nothing(nothing: float) -> None:
    assert Signal().heard(nothing) == Signal()


def mean_share(signal_to_noise: float, batches: int = 1000) -> float:
    """Over the second half of many batches, and over seeds."""
    shares = []
    for seed in range(20):
        signal = Signal()
        for i, noise in enumerate(np.random.default_rng(seed).normal(size=batches)):
            signal = signal.heard(signal_to_noise + noise)
            if i >= batches // 2:
                shares.append(signal.share)
    return float(np.mean(shares))


def test_a_weak_signal_keeps_most_of_its_step_and_noise_does_not() -> None:
    """A third of its noise is what a batch of 1024 steps of Walker2d says; a solved task says nothing."""
    assert mean_share(0.33) > 0.8
    assert mean_share(0.0) < 0.25
    assert mean_share(-0.2) < 0.03


def regression(cautious: bool) -> tuple[nn.Linear, NaturalGradient]:
    torch.manual_seed(0)
    module = nn.Linear(2, 1, bias=False).double()
    optimizer = NaturalGradient(
        module, FixedGaussian(), 100.0, rule="ng", solver="kfac", control=TrustRegion(max_kl=0.01), damping=1e-4,
        gradient_averaging=0.9, factors=FactorSettings(averaging=0.95), cautious=cautious,
    )  # fmt: skip
    return module, optimizer


def step(module: nn.Linear, optimizer: NaturalGradient, inputs: Tensor, targets: Tensor) -> None:
    def loss() -> Tensor:
        optimizer.zero_grad()
        loss = 0.5 * (module(inputs) - targets).square().mean()
        loss.backward()
        return loss

    optimizer.step(loss)


def kl_of_blind_step(cautious: bool) -> float:
    """On the inputs of the first batches, of a step on a batch that hardly sees what they saw."""
    module, optimizer = regression(cautious)
    inputs = torch.randn(200, 2, dtype=torch.float64)
    for _ in range(5):
        step(module, optimizer, inputs, inputs @ torch.tensor([[0.0], [10.0]], dtype=torch.float64))
    before = module(inputs).detach()
    blind = inputs * torch.tensor([1.0, 1e-3], dtype=torch.float64)
    step(module, optimizer, blind, module(blind).detach())
    return float(0.5 * (module(inputs).detach() - before).square().mean())


def test_A9_a_step_is_as_short_as_earlier_batches_would_have_it() -> None:
    """The averaged gradient still points where a batch sees nothing: its own KL would let the step go any length."""
    assert kl_of_blind_step(cautious=False) > 0.1
    assert kl_of_blind_step(cautious=True) == pytest.approx(0.01, rel=0.3)


def noisy_steps(cautious: bool) -> float:
    """How far a solved regression wanders on targets that are noise."""
    module, optimizer = regression(cautious)
    module.weight.data.zero_()
    generator = torch.Generator().manual_seed(1)
    lengths = []
    for _ in range(300):
        inputs, noise = (torch.randn(50, n, dtype=torch.float64, generator=generator) for n in (2, 1))
        step(module, optimizer, inputs, noise)
        lengths.append(float(module.weight.detach().norm()))
    return float(np.mean(lengths[-100:]))


def test_A9_noise_carries_a_solved_model_less_far() -> None:
    assert noisy_steps(cautious=True) < 0.7 * noisy_steps(cautious=False)


def test_a_saved_state_goes_on_bit_for_bit() -> None:
    module, optimizer = regression(cautious=True)
    batches = [(torch.randn(20, 2, dtype=torch.float64), torch.randn(20, 1, dtype=torch.float64)) for _ in range(12)]
    for batch in batches[:6]:
        step(module, optimizer, *batch)
    twin, again = regression(cautious=True)
    twin.load_state_dict(module.state_dict())
    again.load_state_dict(deepcopy(optimizer.state_dict()))
    for batch in batches[6:]:
        step(module, optimizer, *batch)
        step(twin, again, *batch)
    assert optimizer.report.share < 1
    assert torch.equal(module.weight, twin.weight)


def test_states_of_before_are_read() -> None:
    _, optimizer = regression(cautious=True)
    state = optimizer.state_dict()
    del state["state"]["direction"], state["state"]["signal"]
    optimizer.load_state_dict(state)
    assert optimizer.memory.signal == Signal()

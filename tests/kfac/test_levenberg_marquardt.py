"""Levenberg's and Marquardt's control: ratio, damping and guard, with every solver (the iteration: test_methods.py)."""

import copy
import logging
import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from geonpg.errors import Refused
from geonpg.kfac import (
    ALONE,
    SOLVERS,
    Cases,
    DenseFlow,
    FixedGaussian,
    HessianFree,
    HessianFreeSettings,
    LevenbergMarquardt,
    NaturalGradient,
    NetworkFlow,
    Nielsen,
    Problem,
    Quarters,
)
from geonpg.kfac.damping import Damping

IDENTITY = torch.eye(2, dtype=torch.float64)
FLOW = DenseFlow(lambda y: 0.5 * y @ y, lambda y: IDENTITY)
START = torch.tensor([3.0, -4.0], dtype=torch.float64)
V = FLOW.velocity(START)


@pytest.mark.parametrize(("share", "ratio"), [(1.0, 1.0), (0.5, 1.0), (1.5, 1.0)])
def test_the_ratio_is_one_where_the_model_is_exact(share: float, ratio: float) -> None:
    move = LevenbergMarquardt(lr=share).move(FLOW, START, V, lambda h: START + h * V)
    assert move.accepted
    assert move.gain_ratio == pytest.approx(ratio)
    assert move.predicted_kl == pytest.approx(0.5 * share**2 * 25)


def test_the_ratio_divides_actual_by_predicted_reduction() -> None:
    quartic = DenseFlow(lambda y: 0.5 * y @ y + 0.1 * (y @ y) ** 2, lambda y: 30 * IDENTITY)
    v = quartic.velocity(START)
    move = LevenbergMarquardt().move(quartic, START, v, lambda h: START + h * v)
    slope, squared = float((START + 0.4 * 25 * START) @ v), 30 * float(v @ v)
    actual = quartic.loss(START + v) - quartic.loss(START)
    assert move.gain_ratio == pytest.approx(actual / (slope + 0.5 * squared))


def test_a_step_that_does_not_lower_the_loss_is_rejected() -> None:
    move = LevenbergMarquardt(most_bend=math.inf).move(FLOW, START, V, lambda h: START - h * V)
    assert not move.accepted
    assert move.gain_ratio < 0
    assert torch.equal(move.y, START)
    far = LevenbergMarquardt(lr=3.0).move(FLOW, START, V, lambda h: START + h * V)  # where the model predicts a rise
    assert not far.accepted
    assert far.gain_ratio == -math.inf


@pytest.mark.parametrize(("bend", "accepted"), [(0.2, True), (0.37, True), (0.38, False), (5.0, False)])
def test_a_step_that_bends_too_much_is_rejected(bend: float, accepted: bool) -> None:
    """Twice the second-order part over the first-order part may be 0.75."""
    across = bend * torch.tensor([4.0, 3.0], dtype=torch.float64)  # as long as the velocity, times the bend
    assert LevenbergMarquardt().move(FLOW, START, V, lambda h: START + h * V + h**2 * across).accepted == accepted
    free = LevenbergMarquardt(most_bend=math.inf)
    assert free.move(FLOW, START, V, lambda h: START + h * V + h**2 * 0.9 * across).accepted == (bend < 1)


def test_a_step_that_is_not_finite_is_rejected() -> None:
    assert not LevenbergMarquardt().move(FLOW, START, V, lambda h: START * math.nan).accepted
    nowhere = DenseFlow(lambda y: y.sum() * math.nan, lambda y: IDENTITY)
    assert not LevenbergMarquardt().move(nowhere, START, V, lambda h: START + h * V).accepted


def test_nielsens_rule() -> None:
    rule, start = Nielsen(), Damping(1.0, 1.0)
    for ratio in (0.01, 0.3, 0.5, 0.8, 1.0, 7.0):
        expected = max(1 / 3, 1 - (2 * min(ratio, 1) - 1) ** 3)
        assert rule.next(start, ratio, True).value == pytest.approx(expected)
    values = [start]
    for _ in range(4):
        values.append(rule.next(values[-1], -1.0, False))
    assert [each.value for each in values] == [1, 2, 8, 64, 1024]
    assert rule.next(values[-1], 0.5, True) == Damping(1024, 1.0, 2.0)
    assert rule.next(Damping(1e-16, 1.0), 1.0, True).value == 1e-16
    assert rule.next(Damping(0.0, 0.0), -1.0, False).value > 0
    for _ in range(100):
        start = rule.next(start, math.nan, False)
    assert math.isfinite(start.value)


@pytest.mark.parametrize(("ratio", "factor"), [(0.8, 2 / 3), (0.5, 1.0), (0.1, 1.5), (-math.inf, 1.5), (math.nan, 1.5)])
def test_martens_rule(ratio: float, factor: float) -> None:
    assert Quarters().next(Damping(6.0, 1.0), ratio, ratio > 0).value == pytest.approx(6 * factor)


def task() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    x = torch.randn(40, 2, dtype=torch.float64)
    return module, x, torch.sin(2 * x[:, :1])


def step(optimizer: NaturalGradient, module: nn.Module, x: Tensor, t: Tensor) -> float:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = 0.5 * (module(x) - t).square().sum(-1).mean()
        loss.backward()
        return loss

    return float(optimizer.step(closure))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rule", ["ng", "mid", "geo", "geof"])
def test_every_solver_and_rule_lowers_the_loss_step_by_step(rule: str, solver: str) -> None:
    module, x, t = task()
    optimizer = NaturalGradient(module, FixedGaussian(), rule=rule, solver=solver, control=LevenbergMarquardt())
    losses = [step(optimizer, module, x, t) for _ in range(15)]
    assert all(after < before for before, after in pairwise(losses))
    assert losses[-1] < 0.2 * losses[0]
    assert optimizer.report.gain_ratio > 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_another_damping_from_the_same_linearisation_is_another_optimisers_step(solver: str) -> None:
    """What a rejected attempt leaves for the next one is what a fresh flow of that damping would find."""
    module, x, t = task()

    def flow_at(damping: float) -> NetworkFlow:
        optimizer = NaturalGradient(module, FixedGaussian(), solver=solver, damping=damping)
        optimizer.zero_grad()
        return optimizer.flow(lambda: 0.5 * (module(x) - t).square().sum(-1).mean())[1]

    for damping in (1e-4, 3.0):
        flow, fresh = flow_at(0.1), flow_at(damping)
        flow.velocity(flow.base)
        again = flow.with_damping(damping)
        v = fresh.velocity(fresh.base)
        assert torch.allclose(again.velocity(again.base), v, rtol=1e-10)
        assert torch.allclose(again.acceleration(again.base, v), fresh.acceleration(fresh.base, v), rtol=1e-9)
        assert again.points == 1


def test_rejected_attempts_raise_the_damping_within_one_step() -> None:
    """A start where full steps overshoot: the damping rises until one fits, from one Jacobian."""
    module, x, t = task()
    with torch.no_grad():
        module[0].weight.mul_(4)
    optimizer = NaturalGradient(module, FixedGaussian(), solver="jacobian", control=LevenbergMarquardt(), damping=1e-12)
    before = step(optimizer, module, x, t)
    assert optimizer.report.accepted
    assert optimizer.report.points == 1
    assert optimizer.report.damping > 1e-12
    assert step(optimizer, module, x, t) < before


def test_at_a_minimum_the_step_is_given_up_and_nothing_moves(caplog: pytest.LogCaptureFixture) -> None:
    module = nn.Linear(2, 1).double()
    x = torch.randn(9, 2, dtype=torch.float64)
    t = module(x).detach()
    optimizer = NaturalGradient(module, FixedGaussian(), solver="jacobian", control=LevenbergMarquardt(retries=3))
    before = copy.deepcopy(module.state_dict())
    with caplog.at_level(logging.INFO):
        assert step(optimizer, module, x, t) == 0.0
    assert not optimizer.report.accepted
    assert optimizer.rejected == len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.INFO
    assert optimizer.damping == 0.01
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("control", [LevenbergMarquardt(schedule=Quarters()), LevenbergMarquardt(retries=3)], ids=str)
def test_where_the_retries_do_not_suffice_the_next_step_goes_on_from_there(control: LevenbergMarquardt) -> None:
    """Far too little damping for a start where full steps overshoot: it must not be the same step for ever."""
    module, x, t = task()
    with torch.no_grad():
        module[0].weight.mul_(4)
    optimizer = NaturalGradient(module, FixedGaussian(), solver="jacobian", control=control, damping=1e-12)
    losses = [step(optimizer, module, x, t) for _ in range(60)]
    assert optimizer.rejected > 0
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("ratio", [0.5, 0.9])
def test_a_rejected_step_raises_the_damping_whatever_its_ratio(ratio: float) -> None:
    for schedule in (Quarters(), Nielsen()):
        assert schedule.next(Damping(6.0, 1.0), ratio, False).value > 6.0


@pytest.mark.parametrize("solver", ["kfac", "pcg"])
def test_factors_that_cannot_be_inverted_are_tried_with_more_damping(solver: str) -> None:
    """Behind a head of zeros the first layer has no metric at all; without any damping K-FAC fails there."""
    module, x, t = task()
    with torch.no_grad():
        module[2].weight.zero_()
    optimizer = NaturalGradient(module, FixedGaussian(), solver=solver, control=LevenbergMarquardt(), damping=0.0)
    losses = [step(optimizer, module, x, t) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_a_saved_state_goes_on_with_its_damping() -> None:
    module, x, t = task()
    settings = {"rule": "geof", "solver": "jacobian", "control": LevenbergMarquardt()}
    optimizer = NaturalGradient(module, FixedGaussian(), **settings)
    for _ in range(4):
        step(optimizer, module, x, t)
    twin = copy.deepcopy(module)
    other = NaturalGradient(twin, FixedGaussian(), **settings)
    other.load_state_dict(optimizer.state_dict())
    assert other.next_damping == optimizer.next_damping
    for _ in range(3):
        assert step(optimizer, module, x, t) == step(other, twin, x, t)
    old = optimizer.state_dict()
    del old["state"]["growth"]  # as 0.4.0 saved it
    other.load_state_dict(old)
    assert other.next_damping.growth == 2.0


def test_hessian_free_takes_the_same_schedules() -> None:
    module, x, t = task()
    cases = Cases(x, t, lambda z, t: (z - t).square().sum(-1), chunks=1)
    problem = Problem(module, FixedGaussian(), cases)
    ends = {}
    for schedule in (Quarters(), Nielsen()):
        optimizer = HessianFree(
            problem, problem.layout.read(), "geo", HessianFreeSettings(damping=1.0, schedule=schedule)
        )
        reports = [optimizer.step() for _ in range(20)]
        damping = Damping(1.0, 1.0)
        for report in reports:
            assert report.damping == pytest.approx(damping.value)
            damping = schedule.next(damping, report.ratio, report.h > 0)
        ends[type(schedule)] = reports[-1].loss
    assert ends[Nielsen] < ends[Quarters]  # the damping falls faster


def test_a_batch_that_is_not_finite_leaves_the_damping() -> None:
    """No damping would mend it, and the next batch is as good as any."""
    module, x, t = task()
    optimizer = NaturalGradient(module, FixedGaussian(), solver="jacobian", control=LevenbergMarquardt())
    losses = [step(optimizer, module, x, t) for _ in range(3)]
    damping = optimizer.damping
    step(optimizer, module, x, t * math.nan)
    assert not optimizer.report.accepted
    assert optimizer.damping == damping
    assert step(optimizer, module, x, t) < losses[-1]
    assert step(optimizer, module, x, t) < 0.9 * losses[-1]


def test_what_does_not_go_together_is_refused() -> None:
    module, _, _ = task()
    for retries in (0, 12):
        control = LevenbergMarquardt(retries=retries)
        with pytest.raises(Refused, match="gradient_averaging = 0"):
            NaturalGradient(module, FixedGaussian(), control=control, gradient_averaging=0.5)
    with pytest.raises(Refused, match="a schedule of its own"):
        HessianFreeSettings(control=LevenbergMarquardt())

    class Two(type(ALONE)):
        size = 2

    with pytest.raises(Refused, match="in one process"):
        NaturalGradient(module, FixedGaussian(), solver="jacobian", ranks=Two())


@pytest.mark.parametrize("ratio", [-100.0, -math.inf, math.nan])
def test_a_step_that_others_accepted_raises_the_damping_within_its_limits(ratio: float) -> None:
    assert Nielsen().next(Damping(1.0, 1.0), ratio, True).value == 2.0
    assert Nielsen(most=1.5).next(Damping(1.0, 1.0), ratio, True).value == 1.5
    assert Quarters().next(Damping(1.0, 1.0), ratio, True).value == 1.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"least_ratio": 1.0},
        {"most_bend": 0.0},
        {"retries": -1},
        {"retries": 2.5},
        {"lr": math.nan},
        {"schedule": "nielsen"},
    ],
)
def test_values_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Refused, match=next(iter(wrong))):
        LevenbergMarquardt(**wrong)

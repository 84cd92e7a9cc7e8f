"""Step-size control: what is chosen, what is accepted, and the way back along the rule's own curve."""

import math

import pytest
import torch
from torch import Tensor

from geonpg.kfac import Constant, DenseFlow, KlSearch, LineSearch, SolverRegion, TrustRegion
from geonpg.kfac.flow import StepFailure

IDENTITY = torch.eye(2, dtype=torch.float64)
FLOW = DenseFlow(lambda y: 0.5 * y @ y, lambda y: IDENTITY, lambda a, b: 0.5 * (a - b) @ (a - b))
START = torch.tensor([3.0, -4.0], dtype=torch.float64)
V = FLOW.velocity(START)


def straight(h: float) -> Tensor:
    return START + h * V


def test_trust_region_uses_the_exact_quadratic_form() -> None:
    move = TrustRegion(lr=10.0, max_kl=0.02).move(FLOW, START, V, straight)
    assert move.accepted
    assert move.h == pytest.approx(math.sqrt(2 * 0.02 / 25))
    assert move.predicted_kl == pytest.approx(0.02)
    assert move.actual_kl == pytest.approx(0.02)
    assert move.halvings == 0


def test_the_solvers_own_metric_may_predict_the_kl() -> None:
    """Of a velocity that a heavier metric has made, the exact one sees less; the actual KL is no matter until late."""
    v = FLOW.velocity(START) / 3  # as the identity plus a damping of 2 would make it

    def curve(h: float) -> Tensor:
        return START + h * v

    move = SolverRegion(lr=10.0, max_kl=0.02).move(FLOW, START, v, curve)
    assert move.h == pytest.approx(math.sqrt(2 * 0.02 / (v @ (3 * v))))
    assert move.predicted_kl == pytest.approx(0.02)
    assert move.actual_kl == pytest.approx(0.02 / 3)
    far = DenseFlow(lambda y: 0.5 * y @ y, lambda y: IDENTITY, lambda a, b: 50 * (a - b) @ (a - b))
    assert far.divergence(START, curve(move.h)) == pytest.approx(0.02 * 100 / 3)
    again = SolverRegion(lr=10.0, max_kl=0.02).move(far, START, v, curve)
    assert (again.h, again.halvings) == (move.h / 2, 1), "33 times the limit, which is more than 20 times"
    assert SolverRegion(lr=1e-3, max_kl=0.02).move(FLOW, START, v, curve).h == 1e-3


def test_the_learning_rate_is_an_upper_limit() -> None:
    assert TrustRegion(lr=1e-3, max_kl=0.02).move(FLOW, START, V, straight).h == 1e-3


def test_a_step_that_is_too_long_is_halved_along_its_own_curve() -> None:
    """The curve bends: halving must return y + h v - h^2 a, not the straight way back."""
    seen = []

    def bent(h: float) -> Tensor:
        seen.append(h)
        return START + h * V + 100 * h**2 * torch.ones(2, dtype=torch.float64)

    move = TrustRegion(lr=10.0, max_kl=0.02).move(FLOW, START, V, bent)
    assert move.accepted
    assert move.halvings == len(seen) - 1 >= 1
    assert move.actual_kl <= 1.5 * 0.02
    assert torch.equal(move.y, bent(move.h))
    assert move.h == seen[0] * 0.5**move.halvings
    assert float(FLOW.divergence(START, bent(2 * move.h))) > 1.5 * 0.02


def test_infinities_on_the_way_are_halved_too() -> None:
    move = TrustRegion(lr=10.0, max_kl=0.02).move(FLOW, START, V, lambda h: straight(h) / (h < 0.01))
    assert move.accepted
    assert move.h < 0.01


class Edged(DenseFlow):
    """A flow whose manifold ends not far from here."""

    def step_limit(self, y: Tensor, v: Tensor) -> float:
        return 0.25


@pytest.mark.parametrize("control", [Constant(), TrustRegion(max_kl=1e6), LineSearch()], ids=["lr", "trust", "search"])
def test_no_step_goes_beyond_the_edge_of_the_manifold(control) -> None:
    flow = Edged(lambda y: 0.5 * y @ y, lambda y: IDENTITY, lambda a, b: 0.5 * (a - b) @ (a - b))
    move = control.move(flow, START, V, straight)
    assert move.accepted
    assert move.h == 0.25
    assert torch.equal(move.y, straight(0.25))


def failing(h: float) -> Tensor:
    raise StepFailure("never")


@pytest.mark.parametrize("control", [Constant(), TrustRegion(), LineSearch()], ids=["constant", "trust", "search"])
@pytest.mark.parametrize("curve", [lambda h: straight(h) * math.nan, failing], ids=["nan", "failure"])
def test_a_curve_without_a_finite_point_is_refused(control, curve) -> None:
    move = control.move(FLOW, START, V, curve)
    assert not move.accepted
    assert move.h == 0.0
    assert torch.equal(move.y, START)


def test_velocity_that_is_not_finite() -> None:
    assert not TrustRegion().move(FLOW, START, V * math.inf, straight).accepted


def test_zero_velocity_is_a_step_of_no_length() -> None:
    move = TrustRegion().move(FLOW, START, 0 * V, lambda h: START)
    assert move.accepted
    assert torch.equal(move.y, START)


def test_line_search_goes_on_until_the_loss_falls_enough() -> None:
    move = LineSearch(lr=3.0).move(FLOW, START, V, straight)
    assert move.accepted
    assert FLOW.loss(move.y) <= FLOW.loss(START) + 0.01 * move.h * FLOW.slope(START, V)
    tried = move.h / 0.8
    assert FLOW.loss(straight(tried)) > FLOW.loss(START) + 0.01 * tried * FLOW.slope(START, V)


def test_line_search_refuses_an_ascent_direction() -> None:
    assert not LineSearch().move(FLOW, START, -V, lambda h: START - h * V).accepted


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrustRegion(max_kl=0.0), "max_kl must be positive, not 0.0"),
        (lambda: TrustRegion(slack=0.5), "slack must be at least 1"),
        (lambda: Constant(lr=-1.0), "lr must be finite and not negative, not -1.0"),
        (lambda: Constant(lr=math.nan), "lr must be finite"),
        (lambda: LineSearch(shrink=1.0), "shrink must lie between 0 and 1"),
        (lambda: KlSearch(max_kl=-1.0), "max_kl must be positive, not -1.0"),
        (lambda: KlSearch(tolerance=0.0), "tolerance must lie between 0 and 1"),
        (lambda: KlSearch(slack=0.9), "slack must be at least 1"),
        (lambda: KlSearch(growth=0.5), "growth must be at least 1"),
        (lambda: KlSearch(max_tries=0), "max_tries must be at least 1"),
    ],
)
def test_wrong_arguments(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# the search for a KL


def kl_along(power: float, factor: float) -> DenseFlow:
    """A flow whose KL along its velocity, from START on, is factor * (predicted KL) ** (power / 2)."""

    def kl(a: Tensor, b: Tensor) -> Tensor:
        return factor * (0.5 * (a - b) @ (a - b)) ** (power / 2)

    return DenseFlow(lambda y: 0.5 * y @ y, lambda y: IDENTITY, kl)


@pytest.mark.parametrize("max_kl", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("factor", [0.3, 0.8, 1.0, 1.3, 4.0, 30.0])
@pytest.mark.parametrize("power", [1.5, 2.0, 3.0, 4.0])
def test_the_search_finds_the_step_of_a_kl(power: float, factor: float, max_kl: float) -> None:
    """Within 2 % of the target on smooth curves, unless that is beyond `growth` times the predicted step."""
    control = KlSearch(lr=100.0, max_kl=max_kl, growth=50.0)
    move = control.move(kl_along(power, factor), START, V, straight)
    truth = math.sqrt(2 * (max_kl / factor) ** (2 / power) / 25)
    assert move.accepted
    assert move.actual_kl == pytest.approx(max_kl, rel=0.02)
    assert move.h == pytest.approx(truth, rel=0.02)
    assert move.halvings <= 4


def test_a_step_that_is_as_predicted_takes_one_evaluation() -> None:
    move = KlSearch(lr=10.0, max_kl=0.02).move(FLOW, START, V, straight)
    assert (move.halvings, move.h) == (0, pytest.approx(math.sqrt(2 * 0.02 / 25)))


def test_the_search_grows_no_further_than_it_may() -> None:
    flow, radius = kl_along(2.0, 1e-3), math.sqrt(2 * 0.02 / 25)
    assert KlSearch(lr=10.0, max_kl=0.02, growth=2.0).move(flow, START, V, straight).h == pytest.approx(2 * radius)
    assert KlSearch(lr=1.5 * radius, max_kl=0.02).move(flow, START, V, straight).h == pytest.approx(1.5 * radius)


@pytest.mark.parametrize("max_tries", [1, 2, 3, 10])
@pytest.mark.parametrize("jump", [0.3, 0.9, 1.4, 3.0])
def test_the_search_never_exceeds_its_slack(jump: float, max_tries: int) -> None:
    """Not even along a KL that jumps over the target, or becomes infinite behind it."""
    for behind in (100.0, math.inf):

        def kl(a: Tensor, b: Tensor, behind: float = behind) -> Tensor:
            smooth = 0.5 * (a - b) @ (a - b)
            return smooth if smooth < jump * 0.02 else torch.full_like(smooth, behind)

        flow = DenseFlow(lambda y: 0.5 * y @ y, lambda y: IDENTITY, kl)
        move = KlSearch(lr=10.0, max_kl=0.02, max_tries=max_tries).move(flow, START, V, straight)
        assert not move.accepted or move.actual_kl <= 1.5 * 0.02
        assert move.accepted or max_tries < 10
        if move.accepted and jump < 1 and max_tries == 10:
            assert move.actual_kl == pytest.approx(jump * 0.02, rel=0.25)


def test_the_search_follows_the_rules_own_curve() -> None:
    """Along a parabola that turns back the straight way would be another."""
    bend = torch.tensor([30.0, 10.0], dtype=torch.float64)
    move = KlSearch(lr=10.0, max_kl=0.05).move(FLOW, START, V, lambda h: START + h * V - 0.5 * h**2 * bend)
    assert torch.equal(move.y, START + move.h * V - 0.5 * move.h**2 * bend)
    assert move.actual_kl == pytest.approx(0.05, rel=0.02)


def test_a_search_that_begins_beyond_the_finite_numbers() -> None:
    def curve(h: float) -> Tensor:
        return straight(h) if h < 0.01 else straight(h) * math.inf

    move = KlSearch(lr=10.0, max_kl=0.02).move(FLOW, START, V, curve)
    assert move.accepted
    assert 0.005 < move.h < 0.01

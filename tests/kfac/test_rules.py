"""Every rule's declared order, measured; on a manifold of two dimensions and on a network."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from geonpg.kfac import RULES, Constant, DenseFlow, Rule
from geonpg.kfac.flow import StepFailure

FINITE = {name: rule for name, rule in RULES.items() if rule.order < math.inf}
TIME, STEPS = 0.4, (32, 64)
START = torch.tensor([0.4, -0.3], dtype=torch.float64)


def metric(z: Tensor) -> Tensor:
    """Fisher of N(mean, exp(2 log_std)), z = [mean, log std]."""
    return torch.diag(torch.stack([torch.exp(-2 * z[1]), 2 * torch.ones_like(z[1])]))


def loss(z: Tensor) -> Tensor:
    """KL to a fixed normal, up to a constant."""
    return 0.5 * torch.exp(2 * z[1]) + 0.5 * (z[0] - 1.0) ** 2 - z[1]


def warped(w: Tensor) -> Tensor:
    """Another parameterisation of the same family."""
    return torch.stack([torch.sinh(w[0]) + 0.3 * w[1], w[1] + 0.2 * w[1] ** 2])


PLAIN = DenseFlow(loss, metric)


def warped_metric(w: Tensor) -> Tensor:
    jacobian = torch.func.jacfwd(warped)(w)
    return jacobian.mT @ metric(warped(w)) @ jacobian


WARPED = DenseFlow(lambda w: loss(warped(w)), warped_metric)


def warped_start() -> Tensor:
    w = torch.zeros(2, dtype=torch.float64)
    for _ in range(50):
        w = w - torch.linalg.solve(torch.func.jacfwd(warped)(w), warped(w) - START)
    return w


def trajectory(rule: Rule, flow: DenseFlow, y: Tensor, steps: int) -> Tensor:
    memory = None
    for _ in range(steps):
        move, memory = rule.step(flow, y, Constant(lr=TIME / steps), memory)
        y = move.y
    return y


def slope(errors: list[float]) -> float:
    """Order of convergence, from one refinement to the next."""
    return math.log2(errors[0] / errors[1])


@pytest.mark.parametrize("name", FINITE)
def test_invariance_order(name: str) -> None:
    rule = FINITE[name]
    errors = [
        float((trajectory(rule, PLAIN, START, n) - warped(trajectory(rule, WARPED, warped_start(), n))).norm())
        for n in STEPS
    ]
    assert slope(errors) == pytest.approx(rule.order, abs=0.25)


@pytest.mark.parametrize(("name", "order"), [("ng", 1), ("mid", 2), ("geo", 1), ("geof", 1)])
def test_order_against_the_flow(name: str, order: int) -> None:
    truth = trajectory(RULES["ng_exact"], PLAIN, START, 1)
    errors = [float((trajectory(RULES[name], PLAIN, START, n) - truth).norm()) for n in STEPS]
    assert slope(errors) == pytest.approx(order, abs=0.25)


@cache
def riemannian_euler(steps: int) -> Tensor:
    return trajectory(RULES["geo_exact"], PLAIN, START, steps)


@pytest.mark.parametrize(("name", "order"), [("ng", 1), ("mid", 1), ("geo", 2), ("geof", 2)])
def test_order_against_riemannian_euler(name: str, order: int) -> None:
    errors = [float((trajectory(RULES[name], PLAIN, START, n) - riemannian_euler(n)).norm()) for n in STEPS]
    assert slope(errors) == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize("name", ["ng_exact", "geo_exact"])
def test_exact_rules_are_invariant(name: str) -> None:
    plain = trajectory(RULES[name], PLAIN, START, 3)
    other = warped(trajectory(RULES[name], WARPED, warped_start(), 3))
    assert float((plain - other).abs().max()) < 1e-9


def test_exact_geodesic_keeps_its_speed() -> None:
    """The exponential map preserves length: h |v| equals the distance between two normals."""
    v = PLAIN.velocity(START)
    end = trajectory(RULES["geo_exact"], PLAIN, START, 1)
    # Fisher-Rao distance of univariate normals: sqrt(2) times that of the hyperbolic half plane
    a, b = (torch.stack([z[0] / math.sqrt(2), z[1].exp()]) for z in (START, end))
    distance = math.sqrt(2) * math.acosh(1 + float((a - b) @ (a - b)) / (2 * float(a[1] * b[1])))
    assert distance == pytest.approx(TIME * math.sqrt(PLAIN.speed_squared(START, v)), rel=1e-8)


def test_rules_share_one_curve_to_first_order() -> None:
    v = PLAIN.velocity(START)
    for rule in RULES.values():
        move, _ = rule.step(PLAIN, START, Constant(lr=1e-4), None)
        assert float((move.y - START - 1e-4 * v).norm()) < 1e-7


def test_first_step_of_geof_is_a_geo_step_and_the_next_uses_the_displacement_over_its_h() -> None:
    geof, geo = RULES["geof"], RULES["geo"]
    first, memory = geof.step(PLAIN, START, Constant(lr=0.1), None)
    assert torch.equal(first.y, geo.step(PLAIN, START, Constant(lr=0.1), None)[0].y)
    assert memory is not None
    assert torch.allclose(memory, (first.y - START) / 0.1)
    second, _ = geof.step(PLAIN, first.y, Constant(lr=0.03), memory)
    v, a = PLAIN.velocity(first.y), PLAIN.acceleration(first.y, memory)
    assert torch.allclose(second.y, first.y + 0.03 * v - 0.5 * 0.03**2 * a)


def test_a_solution_that_ends_early_fails_the_step() -> None:
    """dy/dt = y^2 from 1 is infinite at t = 1; the solver's last point is no answer."""
    explosive = DenseFlow(lambda y: -(y**3).sum() / 3, lambda y: torch.eye(1, dtype=torch.float64))
    start = torch.ones(1, dtype=torch.float64)
    move, _ = RULES["ng_exact"].step(explosive, start, Constant(lr=2.0), None)
    assert not move.accepted
    move, _ = RULES["ng_exact"].step(explosive, start, Constant(lr=0.5), None)
    assert float(move.y) == pytest.approx(2.0)


def test_a_singular_metric_fails_the_step() -> None:
    flat = DenseFlow(lambda y: y.sum(), lambda y: torch.zeros(2, 2, dtype=torch.float64))
    with pytest.raises(StepFailure, match="the metric is singular"):
        RULES["ng"].step(flat, START, Constant(), None)


class OnCard(Tensor):
    """A tensor that numpy cannot read where it lies, like one of a GPU."""

    def numpy(self, *, force: bool = False):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")

    def cpu(self, *_):
        return self.as_subclass(Tensor)


@pytest.mark.parametrize("name", ["ng_exact", "geo_exact"])
def test_E17_exact_rules_run_where_the_parameters_are(name: str) -> None:
    start = START.clone().as_subclass(OnCard)
    move, _ = RULES[name].step(PLAIN, start, Constant(lr=0.1), None)
    assert type(move.y) is OnCard
    assert torch.equal(move.y.cpu(), RULES[name].step(PLAIN, START, Constant(lr=0.1), None)[0].y)

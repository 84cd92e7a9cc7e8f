"""Hessian-free natural gradient: the paper's formulas through its flow, and how an update behaves."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, hessian, jacrev

from geonpg.kfac import (
    Bernoulli,
    BernoulliMean,
    Cases,
    Categorical,
    CategoricalMean,
    Family,
    FixedGaussian,
    HessianFree,
    HessianFreeSettings,
    LineSearch,
    Problem,
    sparse_initialisation,
)  # fmt: skip
from geonpg.kfac.hessian_free_flow import HessianFreeFlow, diagonal, perturbation
from geonpg.kfac.rules import RULES
from geonpg.kfac.truncated import Truncation

DAMPING = 0.3
# Solved to the last digit, and nothing chosen by its loss.
EXACT = HessianFreeSettings(truncation=Truncation(400, 0.0, spacing=math.inf), guard=False)
FINITE = [name for name, rule in RULES.items() if math.isfinite(rule.order)]


def problem(family: Family, *last: nn.Module, classes: bool = False, cases: int = 6) -> Problem:
    """A small network on random cases; every call gives the same parameters and cases."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 3), *last).double()
    x = torch.randn(cases, 3, dtype=torch.float64)
    t = torch.randint(3, (cases,)) if classes else torch.rand(cases, 3, dtype=torch.float64)
    return Problem(module, family, Cases(x, t, lambda z, t: z.sum(-1), 2), 1e-3)


def derivatives(p: Problem, chunk: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs [n, d], their Jacobian [n, d, size] and Hessian [n, d, size, size] by the parameters."""
    y, x = p.layout.read(), p.cases.parts[chunk][0]

    def outputs(y: Tensor) -> Tensor:
        return functional_call(p.network.module, p.layout.named(y), (x,))

    return outputs(y), jacrev(outputs)(y), hessian(outputs)(y)


def squared(y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.full_like(y, 1 / 0.7**2), torch.zeros_like(y)


def binary(y: Tensor) -> tuple[Tensor, Tensor]:
    return 1 / (y * (1 - y)), (2 * y - 1) / (2 * y**2 * (1 - y) ** 2)


def multi_class(y: Tensor) -> tuple[Tensor, Tensor]:
    return 1 / y, -1 / (2 * y**2)


# The paper's proposition 2, on outputs after the final activation: coefficients of dy dy (and dy ddy), and of dy dy dy.
PROPOSITION_2 = {
    "squared": (problem(FixedGaussian(0.7), nn.Identity()), squared, problem(FixedGaussian(0.7))),
    "binary": (problem(BernoulliMean(), nn.Sigmoid()), binary, problem(Bernoulli())),
    "multi-class": (
        problem(CategoricalMean(), nn.Softmax(-1), classes=True), multi_class, problem(Categorical(), classes=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROPOSITION_2)
def test_proposition_2(name: str) -> None:
    """Velocity and acceleration of the flow solve the paper's equations, in either form of the outputs."""
    after, coefficients, before = PROPOSITION_2[name]
    y = after.layout.read()
    outputs, j, h = derivatives(after)
    first, third = coefficients(outputs)
    shift = torch.diag(after.decays + DAMPING)
    g = torch.einsum("ni,nim,nik->mk", first, j, j) / len(outputs) + shift
    v = -torch.linalg.solve(g, after.gradient(y))
    r, s = j @ v, torch.einsum("nimk,m,k->ni", h, v, v)
    c = torch.einsum("ni,nim->m", first * s + third * r * r, j) / len(outputs)
    for p in (after, before):
        flow = HessianFreeFlow(p, EXACT, DAMPING, 0, {})
        velocity = flow.velocity(y)
        torch.testing.assert_close(velocity, v, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(flow.acceleration(y, v), torch.linalg.solve(g, c), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("binary_loss", [False, True], ids=["squared", "binary"])
def test_perturbation_formulas_of_the_appendix(binary_loss: bool) -> None:
    """The three terms of the appendix, in terms of outputs after the activation, by dense autograd."""
    p, with_activation = (
        (problem(Bernoulli()), problem(BernoulliMean(), nn.Sigmoid()))
        if binary_loss
        else (problem(FixedGaussian(0.7)), problem(FixedGaussian(0.7), nn.Identity()))
    )
    y, t = p.layout.read(), p.cases.parts[0][1]
    v = torch.randn(p.layout.size, dtype=torch.float64, generator=Generator().manual_seed(5))
    outputs, j, h = derivatives(with_activation)
    first, third = (binary if binary_loss else squared)(outputs)
    cubic = 2 * third  # the appendix's (2y - 1) / (y (1 - y))^2 is twice proposition 2's
    r, s = j @ v, torch.einsum("nimk,m,k->ni", h, v, v)
    hv = torch.einsum("nimk,k->nim", h, v)
    a = torch.einsum("ni,nim->m", first * r, hv) + torch.einsum("ni,nim->m", cubic * r * r, j)
    b = 0.5 * torch.einsum("ni,nim->m", first * s + cubic * r * r, j)
    residual = outputs - t
    c = torch.einsum("ni,nim->m", first * residual, hv) + torch.einsum("ni,nim->m", cubic * residual * r, j)
    expected = 2 * (a + b + c) / len(outputs)
    found = perturbation(HessianFreeFlow(p, EXACT, DAMPING, 0, {}).at(y), v)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_perturbation_is_the_second_order_of_the_normal_equations() -> None:
    """-a / 2 solves what the gradient of the loss along z + Jd + d2z[d, d] / 2 leaves at the first-order solution.

    Dropping, as the appendix does, the terms of third order in d and the Hessian term of the unknown.
    """
    p = problem(FixedGaussian(1.0))
    y, t = p.layout.read(), p.cases.parts[0][1]
    z, j, h = derivatives(p)
    v = 1e-4 * torch.randn(p.layout.size, dtype=torch.float64, generator=Generator().manual_seed(5))

    def model(d: Tensor) -> Tensor:
        moved = z + j @ d + 0.5 * torch.einsum("nimk,m,k->ni", h, d, d)
        return 0.5 * (moved - t).square().sum() / len(z)

    linear = torch.einsum("nim,ni->m", j, z - t + j @ v) / len(z)  # what the first-order equations leave
    left = torch.func.grad(model)(v) - linear
    found = perturbation(HessianFreeFlow(p, EXACT, DAMPING, 0, {}).at(y), v)
    torch.testing.assert_close(found / 2, left, rtol=1e-3, atol=1e-10)


def test_without_residual_and_second_motion_perturb_is_geodesic_with_alpha_one() -> None:
    """On an affine network both corrections are those of the output family: none for its natural parameters."""
    torch.manual_seed(0)
    x = torch.randn(5, 3, dtype=torch.float64)
    p = Problem(nn.Linear(3, 2).double(), Bernoulli(), Cases(x, torch.rand(5, 2).double(), lambda z, t: z.sum(-1), 1))
    y, v = p.layout.read(), torch.randn(p.layout.size, dtype=torch.float64)
    point = HessianFreeFlow(p, replace(EXACT, alpha=1.0), DAMPING, 0, {}).at(y)
    assert float(perturbation(point, v).abs().max()) < 1e-12
    assert float(point.metric.connection(v).abs().max()) < 1e-12


def test_diagonal_damping_estimates_the_metrics_diagonal() -> None:
    p, draw = problem(Bernoulli(), cases=40), Generator().manual_seed(0)
    point = HessianFreeFlow(p, EXACT, DAMPING, 0, {}).at(p.layout.read())
    mean = torch.stack([diagonal(point, draw) for _ in range(600)]).mean(0)
    exact = point.metric.dense().diagonal()
    assert float((mean - exact).norm() / exact.norm()) < 0.05


def autoencoder(seed: int = 0, cases: int = 60) -> Problem:
    torch.manual_seed(seed)
    module = nn.Sequential(
        nn.Linear(8, 6), nn.Sigmoid(), nn.Linear(6, 2), nn.Linear(2, 6), nn.Sigmoid(), nn.Linear(6, 8)
    )
    sparse_initialisation(module, Generator().manual_seed(seed), incoming=4)
    code = torch.rand(cases, 2)
    x = (code @ torch.randn(2, 8)).sigmoid()
    return Problem(module, Bernoulli(), Cases(x, x, lambda z, t: (z.sigmoid() - t).square().sum(-1), 3), 1e-5)


def run(p: Problem, rule: str, updates: int, **settings: Any) -> tuple[HessianFree, list[Any]]:
    optimizer = HessianFree(p, p.layout.read(), rule, HessianFreeSettings(**{"damping": 1.0, **settings}))
    return optimizer, [optimizer.step() for _ in range(updates)]


@pytest.mark.parametrize("damp", ["identity", "diagonal"])
@pytest.mark.parametrize("rule", FINITE)
def test_every_rule_trains(rule: str, damp: str) -> None:
    p = autoencoder()
    start = p.evaluate(p.layout.read())
    optimizer, reports = run(p, rule, 15, damp=damp)
    losses = [report.loss for report in reports]
    assert losses == sorted(losses, reverse=True), "the line search accepts only what lowers the loss"
    assert reports[-1].error < 0.5 * start.error
    assert reports[-1].loss == p.evaluate(optimizer.y).loss


def test_levenberg_marquardt_follows_the_ratio() -> None:
    _, reports = run(autoencoder(), "ng", 25, damping=0.01)
    factors = [b.damping / a.damping for a, b in pairwise(reports)]
    expected = [2 / 3 if r.ratio > 0.75 else 1 if r.ratio >= 0.25 else 3 / 2 for r in reports[:-1]]
    assert factors == pytest.approx(expected)
    assert len(set(expected)) > 1


@pytest.mark.parametrize("rule", FINITE)
def test_above_the_threshold_every_rule_is_ng(rule: str) -> None:
    plain, reports = run(autoencoder(), "ng", 3, damping=5.0, threshold=3.0, guard=False)
    ours, ours_reports = run(autoencoder(), rule, 3, damping=5.0, threshold=3.0, guard=False)
    off = next(k for k, report in enumerate(reports) if report.damping < 3.0)
    assert off >= 1
    assert [r.loss for r in ours_reports[:off]] == [r.loss for r in reports[:off]]
    assert torch.equal(plain.y, ours.y) == (rule == "ng")


def test_a_guarded_correction_never_makes_the_full_step_worse() -> None:
    p = autoencoder()
    for start in range(4):
        optimizer, _ = run(p, "ng", 1 + 3 * start, damping=0.01)
        for guard in (False, True):
            flow = HessianFreeFlow(p, HessianFreeSettings(guard=guard, alpha=-1.0), 1e-4, 0, {})
            v = flow.velocity(optimizer.y)
            assert not flow.kept
            a = flow.acceleration(optimizer.y, v)
            better = p.evaluate(optimizer.y + v - 0.5 * a).loss <= p.evaluate(optimizer.y + v).loss
            assert better or not guard
            assert flow.kept == bool(a.any())


@pytest.mark.parametrize("rule", FINITE)
def test_a_report_says_whether_the_step_was_corrected(rule: str) -> None:
    """Never for `ng`, above the threshold or where no step was taken; else where the correction was not dropped."""
    _, reports = run(autoencoder(), rule, 6, damping=1.0, threshold=0.7)
    _, unguarded = run(autoencoder(), rule, 6, damping=1.0, guard=False)
    on = [report.damping < 0.7 and RULES[rule].order > 1 for report in reports]
    assert all(is_on or not report.corrected for is_on, report in zip(on, reports, strict=True))
    assert any(report.corrected for report in reports) == (rule != "ng")
    assert {report.corrected for report in unguarded} == {rule != "ng"}
    _, (refused,) = run(autoencoder(), rule, 1, control=LineSearch(lr=1e30, max_steps=1))
    assert not refused.corrected
    p = autoencoder()
    assert not HessianFree(p, p.layout.read() * math.nan, rule).step().corrected


def test_a_shortened_midpoint_step_needs_no_further_solve() -> None:
    """Between base and midpoint the velocity is interpolated, right to second order; anywhere else it is solved for."""
    p = problem(Bernoulli())
    y = p.layout.read()
    errors = []
    for h in (0.1, 0.05):
        flow = HessianFreeFlow(p, EXACT, DAMPING, 0, {})
        v = flow.velocity(y)
        flow.velocity(y + 0.5 * h * v)
        spent, middle = flow.iterations, y + 0.5 * 0.8 * h * v
        interpolated = flow.velocity(middle)
        assert flow.iterations == spent
        exact = HessianFreeFlow(p, EXACT, DAMPING, 0, {}).velocity(middle)
        errors.append(float((interpolated - exact).norm()))
        aside = middle + 0.1 * torch.ones_like(y)
        solved = HessianFreeFlow(p, EXACT, DAMPING, 0, {}).velocity(aside)
        torch.testing.assert_close(flow.velocity(aside), solved, rtol=1e-6, atol=1e-8)
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.2)


def test_geof_costs_hardly_more_iterations_than_ng() -> None:
    p, settings = autoencoder(), HessianFreeSettings()
    y = p.layout.read()
    plain, faster = (HessianFreeFlow(p, settings, 0.1, 0, {}) for _ in range(2))
    v = plain.velocity(y)
    velocity, _ = faster.velocity_and_acceleration(y, v)
    assert torch.equal(velocity, v)
    assert faster.iterations <= max(plain.iterations + 1, 1.1 * plain.iterations)


def test_geof_takes_of_the_last_displacement_what_the_velocity_has_in_common_with_it() -> None:
    p = autoencoder()
    y = p.layout.read()
    flow = HessianFreeFlow(p, EXACT, DAMPING, 0, {})
    v = flow.velocity(y)
    # a displacement of another length along the velocity makes no difference
    torch.testing.assert_close(flow._projected(y, v, 7.0 * v), v, rtol=1e-6, atol=1e-10)
    torch.manual_seed(5)
    other = torch.randn_like(v)
    lowered = flow.at(y).metric.product(v)
    across = other - v * float(other @ lowered) / float(v @ lowered)
    assert float(flow._projected(y, v, across).norm()) < 1e-6 * float(across.norm())
    assert float(flow._projected(y, v, torch.zeros_like(v)).norm()) == 0


@pytest.mark.parametrize("rule", FINITE)
def test_resuming_is_bit_exact(rule: str) -> None:
    straight, reports = run(autoencoder(), rule, 8, damp="diagonal")
    first, _ = run(autoencoder(), rule, 5, damp="diagonal")
    second = HessianFree(autoencoder(), first.y, rule, first.settings, seed=99)
    second.load_state_dict(first.state_dict())
    rest = [second.step() for _ in range(3)]
    assert rest == reports[5:]
    assert torch.equal(second.y, straight.y)


def test_a_state_of_another_network_is_refused() -> None:
    ours, theirs = run(autoencoder(), "ng", 1)[0], HessianFree(problem(Bernoulli()), torch.zeros(31), "ng")
    with pytest.raises(ValueError, match="the network"):
        ours.load_state_dict(theirs.state_dict())


def test_a_failed_update_stays_and_raises_the_damping() -> None:
    p = autoencoder()
    start = p.layout.read()
    optimizer = HessianFree(p, start, "geo", HessianFreeSettings(damping=1.0, control=LineSearch(lr=1e30, max_steps=1)))
    report = optimizer.step()
    assert torch.equal(optimizer.y, start)
    assert (optimizer.damping, report.h, optimizer.warm) == (1.5, 0.0, {})
    broken = HessianFree(p, start * math.nan, "geo")
    broken.step()
    assert broken.damping == pytest.approx(45 * 1.5)


def test_wrong_values_are_named() -> None:
    with pytest.raises(ValueError, match="choose one of ng, mid, geo, geof"):
        HessianFree(autoencoder(), torch.zeros(1), "ng_exact")
    for wrong in ({"damping": 0.0}, {"damp": "none"}, {"correction": "x"}, {"alpha": 2.0}, {"warm": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong)) if "damp" not in wrong else "damping"):
            HessianFreeSettings(**wrong)

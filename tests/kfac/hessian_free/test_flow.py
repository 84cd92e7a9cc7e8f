"""The flow of one Hessian-free update: the paper's formulas, what it solves for and what it spares."""

import math
from dataclasses import replace

import pytest
import torch
from small_flows import autoencoder, problem
from torch import Generator, Tensor, nn
from torch.func import functional_call, hessian, jacrev

from geonpg.kfac import (
    Bernoulli,
    BernoulliMean,
    Cases,
    Categorical,
    CategoricalMean,
    FixedGaussian,
    HessianFree,
    HessianFreeSettings,
    Problem,
    Truncation,
)
from geonpg.kfac.hessian_free import HessianFreeFlow
from geonpg.kfac.hessian_free.chunk import diagonal, perturbation

DAMPING = 0.3
# Solved to the last digit, and nothing chosen by its loss.
EXACT = HessianFreeSettings(truncation=Truncation(400, 0.0, spacing=math.inf), guard=False)


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
        flow = HessianFreeFlow(p, EXACT, y, DAMPING, 0, {})
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
    found = perturbation(HessianFreeFlow(p, EXACT, y, DAMPING, 0, {}).at(y), v)
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
    found = perturbation(HessianFreeFlow(p, EXACT, y, DAMPING, 0, {}).at(y), v)
    torch.testing.assert_close(found / 2, left, rtol=1e-3, atol=1e-10)


def test_without_residual_and_second_motion_perturb_is_geodesic_with_alpha_one() -> None:
    """On an affine network both corrections are those of the output family: none for its natural parameters."""
    torch.manual_seed(0)
    x = torch.randn(5, 3, dtype=torch.float64)
    p = Problem(nn.Linear(3, 2).double(), Bernoulli(), Cases(x, torch.rand(5, 2).double(), lambda z, t: z.sum(-1), 1))
    y, v = p.layout.read(), torch.randn(p.layout.size, dtype=torch.float64)
    point = HessianFreeFlow(p, replace(EXACT, alpha=1.0), y, DAMPING, 0, {}).at(y)
    assert float(perturbation(point, v).abs().max()) < 1e-12
    assert float(point.metric.connection(v).abs().max()) < 1e-12


def test_diagonal_damping_estimates_the_metrics_diagonal() -> None:
    p, draw = problem(Bernoulli(), cases=40), Generator().manual_seed(0)
    y = p.layout.read()
    point = HessianFreeFlow(p, EXACT, y, DAMPING, 0, {}).at(y)
    mean = torch.stack([diagonal(point, draw) for _ in range(600)]).mean(0)
    exact = point.metric.dense().diagonal()
    assert float((mean - exact).norm() / exact.norm()) < 0.05


def test_a_guarded_correction_never_makes_the_full_step_worse() -> None:
    p = autoencoder()
    for start in range(4):
        optimizer = HessianFree(p, p.layout.read(), "ng", HessianFreeSettings(damping=0.01))
        for _ in range(1 + 3 * start):
            optimizer.step()
        for guard in (False, True):
            flow = HessianFreeFlow(p, HessianFreeSettings(guard=guard, alpha=-1.0), optimizer.y, 1e-4, 0, {})
            v = flow.velocity(optimizer.y)
            assert not flow.corrected
            a = flow.acceleration(optimizer.y, v)
            better = p.evaluate(optimizer.y + v - 0.5 * a).loss <= p.evaluate(optimizer.y + v).loss
            assert better or not guard
            assert flow.corrected == bool(a.any())


def test_a_shortened_midpoint_step_needs_no_further_solve() -> None:
    """Between base and midpoint the velocity is interpolated, right to second order; anywhere else it is solved for."""
    p = problem(Bernoulli())
    y = p.layout.read()
    errors = []
    for h in (0.1, 0.05):
        flow = HessianFreeFlow(p, EXACT, y, DAMPING, 0, {})
        v = flow.velocity(y)
        flow.velocity(y + 0.5 * h * v)
        spent, middle = flow.iterations, y + 0.5 * 0.8 * h * v
        interpolated = flow.velocity(middle)
        assert flow.iterations == spent
        exact = HessianFreeFlow(p, EXACT, middle, DAMPING, 0, {}).velocity(middle)
        errors.append(float((interpolated - exact).norm()))
        aside = middle + 0.1 * torch.ones_like(y)
        solved = HessianFreeFlow(p, EXACT, aside, DAMPING, 0, {}).velocity(aside)
        torch.testing.assert_close(flow.velocity(aside), solved, rtol=1e-6, atol=1e-8)
    assert math.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.2)


def test_geof_costs_hardly_more_iterations_than_ng() -> None:
    p, settings = autoencoder(), HessianFreeSettings()
    y = p.layout.read()
    plain, faster = (HessianFreeFlow(p, settings, y, 0.1, 0, {}) for _ in range(2))
    v = plain.velocity(y)
    velocity, _ = faster.velocity_and_acceleration(y, v)
    assert torch.equal(velocity, v)
    assert faster.iterations <= max(plain.iterations + 1, 1.1 * plain.iterations)


def test_geof_takes_of_the_last_displacement_what_the_velocity_has_in_common_with_it() -> None:
    p = autoencoder()
    y = p.layout.read()
    flow = HessianFreeFlow(p, EXACT, y, DAMPING, 0, {})
    v = flow.velocity(y)
    # a displacement of another length along the velocity makes no difference
    torch.testing.assert_close(flow._projected(y, v, 7.0 * v), v, rtol=1e-6, atol=1e-10)
    torch.manual_seed(5)
    other = torch.randn_like(v)
    lowered = flow.at(y).metric.product(v)
    across = other - v * float(other @ lowered) / float(v @ lowered)
    assert float(flow._projected(y, v, across).norm()) < 1e-6 * float(across.norm())
    assert float(flow._projected(y, v, torch.zeros_like(v)).norm()) == 0


def test_what_is_evaluated_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base point and the best candidate are known when the line search asks for them."""
    p = autoencoder()
    y = p.layout.read()
    flow = HessianFreeFlow(p, HessianFreeSettings(guard=False), y, 0.1, 0, {})
    v = flow.velocity(y)
    flow.loss(y)
    expected = [p.evaluate(y).loss, p.evaluate(y + v).loss]
    monkeypatch.setattr(p, "evaluate", None)
    assert [flow.loss(y), flow.loss(y + v)] == expected

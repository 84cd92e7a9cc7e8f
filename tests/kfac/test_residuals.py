"""Residuals as the model: values, Jacobian and second derivatives against brute force; steps against Gauss-Newton."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.func import hessian, jacrev, jvp

from geonpg.errors import Refused
from geonpg.kfac import (
    Categorical,
    CgSolver,
    Constant,
    FixedGaussian,
    LevenbergMarquardt,
    NaturalGradient,
    Network,
    Solver,
    Term,
)
from geonpg.kfac.residuals import ResidualsBatch

Function = Callable[[Tensor], Tensor]


def laplacian(u: Function, x: Tensor) -> Tensor:
    return hessian(lambda x: u(x)[0])(x).diagonal().sum()


def poisson(u: Function, x: Tensor) -> Tensor:
    return laplacian(u, x) + torch.sin(x).prod()


def gradient(u: Function, x: Tensor, direction: Tensor) -> Tensor:
    """Two residuals at a point: a value and a slope."""
    value, slope = jvp(u, (x,), (direction,))
    return torch.cat([value, slope])


def net(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)).to(dtype)


def terms(dtype: torch.dtype = torch.float64) -> tuple[Term, ...]:
    draw = torch.Generator().manual_seed(1)
    inside, edge, along = (torch.rand(n, 2, generator=draw, dtype=dtype) for n in (7, 4, 4))
    return Term(poisson, inside), Term(gradient, (edge, along), weight=3.0)


TERMS = terms()


def by_hand(module: nn.Module, y: Tensor) -> Tensor:
    """The weighted residuals, one point after the other: sqrt(weight / points) times each."""
    network = Network(module)

    def u(x: Tensor) -> Tensor:
        return network.with_parameters(y)(x)

    first, second = TERMS
    inside = [poisson(u, x) / math.sqrt(7) for x in first.points]
    edge = [gradient(u, x, d) * math.sqrt(3 / 4) for x, d in zip(*second.points, strict=True)]
    return torch.cat([torch.stack(inside), torch.cat(edge)])


@pytest.mark.parametrize("by_rows", [True, False])
def test_values_and_derivatives_against_brute_force(by_rows: bool) -> None:
    module = net()
    batch = ResidualsBatch(Network(module), FixedGaussian(), terms(), by_rows)
    y = Network(module).layout.read()
    at, root = batch.linearise(y), math.sqrt(15)  # 7 + 4 * 2 residuals, whose mean is taken
    truth, j = by_hand(module, y), jacrev(lambda y: by_hand(module, y))(y)
    assert torch.allclose(at.z[:, 0] / root, truth, atol=1e-13)
    loss, slope = batch.evaluate(y)
    assert loss == pytest.approx(0.5 * float(truth.square().sum()))
    assert batch.loss(y) == pytest.approx(loss)
    assert torch.allclose(slope, j.mT @ truth, atol=1e-12)
    v, u = torch.randn(len(y), dtype=torch.float64), torch.randn(15, 1, dtype=torch.float64)
    assert torch.allclose(at.first(v)[:, 0] / root, j @ v, atol=1e-12)
    assert torch.allclose(at.pullback(u) / root, j.mT @ u[:, 0], atol=1e-12)
    assert torch.allclose(at.pullback_each(u) / root, j * u, atol=1e-12)
    v *= 0.1  # as long as a step
    r, s = at.second(v)
    curved = torch.einsum("nij,i,j->n", hessian(lambda y: by_hand(module, y))(y), v, v)
    assert torch.allclose(r[:, 0] / root, j @ v, atol=1e-12)
    wrong = float((s[:, 0] / root - curved).norm()) / float(curved.norm())
    assert wrong < (1e-5 if by_rows else 1e-11)


@pytest.mark.parametrize("solver", ["jacobian", "dense", CgSolver(preconditioned=False, iterations=200)])
@pytest.mark.parametrize("rule", ["ng", "geo"])
def test_a_step_is_that_of_gauss_and_newton_with_its_correction(rule: str, solver: str | Solver) -> None:
    module = net()
    y = Network(module).layout.read()
    r, j = by_hand(module, y), jacrev(lambda y: by_hand(module, y))(y)
    damped = j.mT @ j + 0.1 * torch.eye(len(y), dtype=torch.float64)
    v = -torch.linalg.solve(damped, j.mT @ r)
    bent = torch.einsum("nij,i,j->n", hessian(lambda y: by_hand(module, y))(y), v, v)
    a = torch.linalg.solve(damped, j.mT @ bent)
    optimizer = NaturalGradient(module, FixedGaussian(), rule=rule, solver=solver, control=Constant(), damping=0.1)
    assert optimizer.step_residuals(*terms()) == pytest.approx(0.5 * float(r.square().sum()))
    truth = y + v - (0.5 * a if rule == "geo" else 0)
    wrong = float((Network(module).layout.read() - truth).norm())
    assert wrong < (1e-4 * float(a.norm()) if (rule, solver) == ("geo", "jacobian") else 1e-9)
    assert optimizer.report.points == 1


def test_the_deviation_of_the_family_scales_loss_and_metric_alike() -> None:
    ends = []
    for std, damping in ((1.0, 0.1), (0.5, 0.4)):
        module = net()
        optimizer = NaturalGradient(
            module, FixedGaussian(std), rule="geo", solver="jacobian", control=Constant(), damping=damping
        )
        optimizer.step_residuals(*terms())
        ends.append(Network(module).layout.read())
    assert torch.allclose(*ends, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", ["ng", "mid", "geo", "geof"])
def test_every_rule_lowers_the_loss_step_by_step(rule: str, dtype: torch.dtype) -> None:
    module = net(dtype)
    optimizer = NaturalGradient(module, FixedGaussian(), rule=rule, solver="jacobian", control=LevenbergMarquardt())
    losses = [optimizer.step_residuals(*terms(dtype)) for _ in range(12)]
    assert all(after < before for before, after in pairwise(losses))
    assert losses[-1] < 1e-2 * losses[0]


def test_an_operator_may_write_into_its_own_tensor() -> None:
    def writing(u: Function, x: Tensor) -> Tensor:
        found = torch.zeros_like(x)
        found[0] = u(x)[0] - 1
        return found

    module = net()
    optimizer = NaturalGradient(module, FixedGaussian(), rule="geo", solver="jacobian", control=LevenbergMarquardt())
    losses = [optimizer.step_residuals(Term(writing, torch.rand(5, 2).double())) for _ in range(3)]
    assert losses[-1] < losses[0]


def test_short_steps_bend_as_long_ones_do() -> None:
    """Differences would drown in rounding along a direction that hardly moves the parameters."""
    module = net()
    network = Network(module)
    at = ResidualsBatch(network, FixedGaussian(), TERMS, by_rows=True).linearise(network.layout.read())
    v = torch.randn(at.size, dtype=torch.float64)
    truth = at._function.second(v)[1]
    for short in (1e-1, 1e-3, 1e-6, 1e-9):
        wrong = at.second(short * v)[1] / short**2 - truth
        assert float(wrong.norm()) < 1e-3 * float(truth.norm())


def test_refusals() -> None:
    def stepping(*which: Term, **settings: object) -> None:
        settings = {"solver": "jacobian", "family": FixedGaussian(), **settings}
        NaturalGradient(net(), settings.pop("family"), **settings).step_residuals(*which)

    with pytest.raises(Refused, match="FixedGaussian"):
        stepping(*terms(), family=Categorical())
    for solver in ("kfac", "pcg"):
        with pytest.raises(Refused, match="jacobian, cg or dense"):
            stepping(*terms(), solver=solver)
    with pytest.raises(Refused, match="at least one Term"):
        stepping()
    with pytest.raises(Refused, match="and nothing else"):
        stepping([*terms()])
    for made in (lambda u, x: (u(x), x), lambda u, x: torch.complex(u(x), u(x)), lambda u, x: u(x)[:0]):
        with pytest.raises(Refused, match="one tensor of real numbers"):
            stepping(Term(made, torch.rand(3, 2).double()))
    for points in ([1.0], torch.tensor(1.0), (torch.rand(3, 2), None), ()):
        with pytest.raises(Refused, match="points must be"):
            Term(poisson, points)
    with pytest.raises(Refused, match="operator must be a function"):
        Term(None, torch.rand(3, 2))
    with pytest.raises(Refused, match="weight must be positive"):
        Term(poisson, torch.rand(3, 2), weight=0.0)
    with pytest.raises(Refused, match="as many rows"):
        Term(gradient, (torch.rand(3, 2), torch.rand(4, 2)))
    with pytest.raises(Refused, match="at least one point"):
        Term(poisson, torch.rand(0, 2))

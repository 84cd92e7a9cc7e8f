"""Residuals as the model: values, Jacobian and second derivatives against brute force; steps against Gauss-Newton."""

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
    FlowMemory,
    JacobianSolver,
    LevenbergMarquardt,
    NaturalGradient,
    Network,
    NetworkFlow,
    Solver,
    Term,
)
from geonpg.kfac.residuals import ResidualsBatch, made_by

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


def through(g: Function) -> Function:
    """An operator that holds another function; all of them are made by the same lines."""
    return lambda u, x: g(u(x)).sum()


def normalised(z: Tensor) -> Tensor:
    return nn.functional.layer_norm(torch.cat([z, z.square(), torch.ones_like(z)]), (3,))[0]


def second_of(optimizer: NaturalGradient, operator: Function, v: Tensor) -> Tensor:
    network = optimizer.geometry.network
    batch = ResidualsBatch(network, FixedGaussian(), (Term(operator, TERMS[0].points),), by_rows=False)
    return batch.linearise(network.layout.read()).second(v)[1]


def test_what_is_found_of_one_operator_is_not_believed_of_another() -> None:
    """torch's nested forward mode is wrong through layer_norm, and right without it."""
    module = net()
    optimizers = [NaturalGradient(module, FixedGaussian(), solver="cg") for _ in range(2)]
    v = torch.ones_like(optimizers[0].geometry.network.layout.read())
    second_of(optimizers[0], through(torch.sin), v)
    after, fresh = (second_of(each, through(normalised), v) for each in optimizers)
    assert torch.equal(after, fresh)


@dataclass
class Scaled:
    """An operator that cannot be hashed."""

    scale: float

    def __call__(self, u: Function, x: Tensor) -> Tensor:
        return self.scale * u(x) - 1


def test_any_operator_works_and_leaves_an_optimiser_that_can_be_pickled() -> None:
    module = net()
    optimizer = NaturalGradient(module, FixedGaussian(), solver="cg", control=LevenbergMarquardt())
    points = TERMS[0].points
    losses = [
        optimizer.step_residuals(Term(operator, points))
        for operator in (Scaled(2.0), partial(Scaled.__call__, Scaled(2.0)), lambda u, x: 2.0 * u(x) - 1)
    ]
    assert losses[2] < losses[1] < losses[0]
    assert pickle.loads(pickle.dumps(optimizer)).damping == optimizer.damping


def test_functions_are_known_again_if_they_hold_data_only() -> None:
    def made(held: object) -> Function:
        return lambda u, x: u(x) * (held is None)

    assert made_by(poisson) == made_by(poisson)
    assert made_by(made(2.0)) == made_by(made(torch.ones(2))) is not None
    assert made_by(made(torch.sin)) is made_by(Scaled(1.0)) is made_by(partial(poisson)) is None


def test_residuals_in_another_precision_are_those_of_the_module() -> None:
    module = net(torch.float32)
    target = torch.ones(1, dtype=torch.float64)
    optimizer = NaturalGradient(module, FixedGaussian(), solver="jacobian", control=LevenbergMarquardt())
    term = Term(lambda u, x: u(x) - target, TERMS[0].points)
    assert optimizer.step_residuals(term) > optimizer.step_residuals(term)


def test_an_operator_that_calls_the_module_itself_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    module = net()
    optimizer = NaturalGradient(module, FixedGaussian(), solver="jacobian", control=LevenbergMarquardt())
    optimizer.step_residuals(Term(lambda u, x: module(x), TERMS[0].points))
    assert "operators must call u" in caplog.text


def test_the_residual_of_a_correction_is_right_where_the_diagonal_is_damped() -> None:
    module, terms = net(), TERMS
    for scaling in ("identity", "diagonal"):
        solver = JacobianSolver(scaling)
        optimizer = NaturalGradient(module, FixedGaussian(), solver=solver, control=Constant(0.3), damping=0.1)
        network = optimizer.geometry.network
        batch = ResidualsBatch(network, FixedGaussian(), terms, by_rows=True)
        y = network.layout.read()
        flow = NetworkFlow(optimizer.geometry, batch, y, FlowMemory(), 0.1, torch.Generator())
        a = flow.acceleration(y, flow.velocity(y))
        at = batch.linearise(y)
        left = at.second(flow.velocity(y))[1] - at.first(a)
        assert flow.correction is not None
        assert flow.correction.residual_after == pytest.approx(float(left.square().mean().sqrt()), rel=1e-6)

"""Residuals as others' optimisers see them, against autograd term by term."""

import pytest
import torch
from torch import Tensor, nn

from geonpg.kfac import Term
from geonpg.scripts.least_squares.problem import Function, LeastSquares, Residuals


def two_outputs(u: Function, x: Tensor, t: Tensor) -> Tensor:
    return u(x) * t - x.sum()


def slope(u: Function, x: Tensor) -> Tensor:
    return torch.func.grad(lambda z: u(z)[0])(x)[0]


@pytest.fixture
def problem() -> LeastSquares:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x, t = torch.randn(5, 3).double(), torch.randn(5, 2).double()
    return LeastSquares(module, (Term(two_outputs, (x, t), 3.0), Term(slope, torch.randn(7, 3).double(), 0.5)))


def weighted(problem: LeastSquares) -> list[Tensor]:
    """Every residual, computed point by point."""
    first, second = problem.terms
    assert isinstance(first.points, tuple)
    assert isinstance(second.points, Tensor)
    found = [two_outputs(problem.module, x, t) * (3.0 / 5) ** 0.5 for x, t in zip(*first.points, strict=True)]
    return [*torch.cat(found), *(slope(problem.module, x) * (0.5 / 7) ** 0.5 for x in second.points)]


def test_residuals_and_loss_are_those_of_every_point(problem: LeastSquares) -> None:
    residuals = Residuals(problem)
    expected = torch.stack(weighted(problem))
    torch.testing.assert_close(residuals.vector(residuals.named(residuals.start())), expected)
    torch.testing.assert_close(residuals.loss(), 0.5 * expected.square().sum())


def test_the_jacobian_is_that_of_autograd(problem: LeastSquares) -> None:
    residuals, parameters = Residuals(problem), list(problem.module.parameters())
    untouched = sum(0.0 * p.sum() for p in parameters)  # a slope does not depend on the last bias
    rows = [torch.autograd.grad(r + untouched, parameters, retain_graph=True) for r in weighted(problem)]
    expected = torch.stack([torch.cat([each.reshape(-1) for each in row]) for row in rows])
    torch.testing.assert_close(residuals.jacobian(residuals.named(residuals.start())), expected)


def test_parameters_are_written_back(problem: LeastSquares) -> None:
    residuals = Residuals(problem)
    y = residuals.start() + 1.0
    residuals.write(y)
    assert torch.equal(residuals.start(), y)

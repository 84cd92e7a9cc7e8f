"""Conjugate gradients: what every iterate satisfies, and what happens where a number is not usable."""

import pytest
import torch
from small_flows import gaussian_flow

from geonpg.kfac.conjugate_gradients import ConjugateGradients, conjugate_gradients
from geonpg.kfac.flow import StepFailure


def test_every_iterate_is_a_galerkin_solution() -> None:
    """x^T g x = b^T x after any number of iterations: this is why CG corrections need no calibration."""
    flow, y = gaussian_flow("pcg", damping=1e-2)
    point, b = flow.at(y), torch.randn(len(y), dtype=torch.float64)
    for iterations in (1, 2, 5, 10):
        x = conjugate_gradients(point.product, b, point.precondition, iterations, 0.0)
        assert float(x @ point.product(x)) == pytest.approx(float(b @ x), rel=1e-10)


def test_a_product_that_is_not_finite_stops_the_iteration() -> None:
    b, matrix = torch.tensor([1.0, 2.0, 3.0]), torch.diag(torch.tensor([1.0, 2.0, 3.0]))
    products = iter([1.0, float("nan")])
    x = conjugate_gradients(lambda v: matrix @ v * next(products), b, torch.clone, 5, 0.0)
    assert torch.allclose(x, b * float(b @ b) / float(b @ matrix @ b)), "the first step stands"


def test_E7_a_right_hand_side_whose_norm_overflows_fails_the_step() -> None:
    with pytest.raises(StepFailure, match="the right-hand side of the linear system overflows"):
        conjugate_gradients(torch.clone, torch.full((3,), 1e20), torch.clone, 5, 1e-10)


@pytest.mark.parametrize("curvature", [0.0, -1.0, float("nan")])
def test_E7_a_system_without_curvature_fails_the_step(curvature: float) -> None:
    with pytest.raises(StepFailure, match="no positive curvature along the gradient"):
        conjugate_gradients(lambda v: v * curvature, torch.ones(3), torch.clone, 5, 0.0)


@pytest.mark.parametrize("size", [0.0, 1e-30])
def test_E7_where_there_is_nothing_to_solve_for_the_solution_is_zero(size: float) -> None:
    x = conjugate_gradients(torch.clone, torch.full((3,), size), torch.clone, 5, 0.0)
    assert torch.equal(x, torch.zeros(3))


@pytest.mark.parametrize("warm", [False, True])
def test_each_iteration_says_by_how_much_it_lowers_the_quadratic_model(warm: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    root, b, start = (torch.randn(*shape, generator=generator).double() for shape in ((6, 6), (6,), (6,)))
    matrix = root @ root.mT + torch.eye(6)

    def model(x: torch.Tensor) -> float:
        return float(0.5 * x @ matrix @ x - b @ x)

    cg = ConjugateGradients(lambda v: matrix @ v, b, lambda r: r / matrix.diagonal(), start if warm else None)
    for _ in range(6):
        before = model(cg.x)
        assert cg.advance() == pytest.approx(before - model(cg.x), rel=1e-6, abs=1e-12)
        torch.testing.assert_close(cg.residual, b - matrix @ cg.x)
    torch.testing.assert_close(cg.x, torch.linalg.solve(matrix, b))


def test_an_iteration_that_cannot_be_computed_leaves_the_solution_alone() -> None:
    cg = ConjugateGradients(lambda v: -v, torch.ones(3), torch.clone)
    assert cg.advance() is None
    assert torch.equal(cg.x, torch.zeros(3))

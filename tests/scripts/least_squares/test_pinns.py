"""Differential equations: the solutions that we measure errors against do solve them."""

import math

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from geonpg.scripts.least_squares.pinns import (
    BOUNDARY,
    INTERIOR,
    PINNS,
    burgers_solution,
    derivatives,
    make_pinn,
    side_points,
    stretched,
)
from geonpg.scripts.least_squares.problem import Residuals

every_pinn = pytest.mark.parametrize("name", PINNS)


def random_points(name: str, count: int = 200) -> Tensor:
    unit = torch.rand(count, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return stretched(PINNS[name], 0.001 + 0.998 * unit)


@every_pinn
def test_the_solution_solves_the_equation(name: str) -> None:
    equation = PINNS[name]
    left = vmap(lambda x: equation.operator(equation.solution, x))(random_points(name))
    assert float(left.abs().max()) < 1e-10


@every_pinn
def test_another_function_does_not(name: str) -> None:
    equation = PINNS[name]
    left = vmap(lambda x: equation.operator(lambda z: equation.solution(z) + 0.1 * z.square().sum(), x))
    assert float(left(random_points(name)).abs().max()) > 0.01


def test_burgers_starts_as_a_sine_and_stays_zero_at_both_ends() -> None:
    x, zero = torch.linspace(-1, 1, 9).double(), torch.zeros(9).double()
    start = burgers_solution(torch.stack([x, zero], 1))
    torch.testing.assert_close(start[:, 0], -torch.sin(math.pi * x), atol=1e-12, rtol=0)
    for end in (-1.0, 1.0):
        values = burgers_solution(torch.stack([zero + end, x.abs()], 1))
        assert float(values.abs().max()) < 1e-12


def test_burgers_flow_is_the_same_with_twice_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    points = random_points("burgers")
    coarse = burgers_solution(points)
    monkeypatch.setattr("geonpg.scripts.least_squares.pinns.NODES", 200)
    torch.testing.assert_close(burgers_solution(points), coarse, atol=1e-12, rtol=0)


def test_derivatives_are_those_of_a_polynomial() -> None:
    x = torch.tensor([2.0, 3.0], dtype=torch.float64)
    value, gradient, hessian = derivatives(lambda z: (z[0] ** 3 * z[1] ** 2).reshape(1), x)
    assert float(value) == 72.0
    assert gradient.tolist() == [108.0, 48.0]
    assert hessian.tolist() == [[108.0, 72.0], [72.0, 16.0]]


@every_pinn
def test_points_lie_where_values_are_known(name: str) -> None:
    equation = PINNS[name]
    low, high = (torch.tensor(corner).double() for corner in (equation.low, equation.high))
    points = side_points(equation, 60, torch.Generator().manual_seed(0))
    on_low, on_high = (points == low).sum(0).tolist(), (points == high).sum(0).tolist()
    each = 20 if equation.evolves else 15
    assert on_low == [each, each]
    assert on_high == [each, 0 if equation.evolves else each]


@every_pinn
def test_a_seed_gives_a_problem(name: str) -> None:
    one, same, other = make_pinn(name, 3, 8), make_pinn(name, 3, 8), make_pinn(name, 4, 8)
    first, second, third = (Residuals(problem) for problem in (one, same, other))
    assert torch.equal(first.start(), second.start())
    assert len(first.start()) == 8 * 8 + 5 * 8 + 1
    assert torch.equal(first.loss(), second.loss())
    assert not torch.equal(first.loss(), third.loss())
    assert len(first.vector(first.named(first.start()))) == INTERIOR + BOUNDARY
    assert one.error() == same.error() > 0.1


def test_an_error_is_relative() -> None:
    problem = make_pinn("cubic", 0, 8)
    Residuals(problem).write(torch.zeros(8 * 8 + 5 * 8 + 1).double())
    assert problem.error() == pytest.approx(1.0)  # of zero

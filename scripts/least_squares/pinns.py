"""Physics-informed networks: differential equations whose solution is known, as least-squares problems.

A network u(x, y) or u(x, t) is trained so that the equation holds at points inside a rectangle, and the solution's
values on its sides. On the interval of an evolution equation these are its start and its two ends.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.func import grad_and_value, jacfwd

from geonpg.kfac import Term
from geonpg.scripts.least_squares.problem import Function, LeastSquares, Operator

PI = math.pi
INTERIOR, BOUNDARY = 400, 80  # points
GRID = 41  # points per axis on which the error is measured


def derivatives(u: Function, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return u [], its gradient [2] and its Hessian matrix [2, 2] at one point [2]."""

    def slope(z: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        gradient, value = grad_and_value(lambda z: u(z)[0])(z)
        return gradient, (gradient, value)

    hessian, (gradient, value) = jacfwd(slope, has_aux=True)(x)
    return value, gradient, hessian


def poisson(u: Function, x: Tensor) -> Tensor:
    """Poisson's equation, -Laplace(u) = f."""
    _, _, hessian = derivatives(u, x)
    return -hessian.trace() - 2 * PI**2 * poisson_solution(x)[0]


def poisson_solution(x: Tensor) -> Tensor:
    """A product of sines, zero on all sides; x [..., 2] -> [..., 1]."""
    return (torch.sin(PI * x[..., 0]) * torch.sin(PI * x[..., 1])).unsqueeze(-1)


def cubic(u: Function, x: Tensor) -> Tensor:
    """A reaction that grows with the cube of u: -Laplace(u) + u^3 = f."""
    value, _, hessian = derivatives(u, x)
    exact = cubic_solution(x)[0]
    return -hessian.trace() + value**3 - (2 * PI**2 * exact + exact**3)


def cubic_solution(x: Tensor) -> Tensor:
    """A product of cosines, not zero on the sides."""
    return (2 * torch.cos(PI * x[..., 0]) * torch.cos(PI * x[..., 1])).unsqueeze(-1)


VISCOSITY = 0.1 / PI


def burgers(u: Function, x: Tensor) -> Tensor:
    """Burgers' equation of a viscous flow, u_t + u u_x = nu u_xx."""
    value, (by_x, by_t), hessian = derivatives(u, x)
    return by_t + value * by_x - VISCOSITY * hessian[0, 0]


NODES = 100  # of the quadrature behind the solution of Burgers' equation


def burgers_solution(x: Tensor) -> Tensor:
    """The flow that starts as -sin(pi x), by the transform of Cole and Hopf and Gauss-Hermite quadrature."""
    z, w = (torch.from_numpy(each).to(x) for each in np.polynomial.hermite.hermgauss(NODES))
    at = PI * (x[..., :1] - z * torch.sqrt(4 * VISCOSITY * x[..., 1:]))
    weight = w * torch.exp(-torch.cos(at) / (2 * PI * VISCOSITY))
    return -(weight * torch.sin(at)).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True)


DIFFUSION, GROWTH, AT_FIRST = 0.02, 5.0, -0.3  # and where the front is at time zero


def front(u: Function, x: Tensor) -> Tensor:
    """A front that grows into empty space (Fisher, Kolmogorov): u_t = D u_xx + r u (1 - u)."""
    value, (_, by_t), hessian = derivatives(u, x)
    return by_t - DIFFUSION * hessian[0, 0] - GROWTH * value * (1 - value)


def front_solution(x: Tensor) -> Tensor:
    """The travelling wave that is known in closed form (Ablowitz and Zeppetella 1979)."""
    behind = math.sqrt(GROWTH / (6 * DIFFUSION)) * (x[..., :1] - AT_FIRST) - 5 * GROWTH / 6 * x[..., 1:]
    return (1 + torch.exp(behind)) ** -2


@dataclass(frozen=True)
class Equation:
    """A differential equation on a rectangle.

    operator: its residual at one point.
    solution: x [..., 2] -> [..., 1].
    low, high: the rectangle's corners.
    evolves: whether the second coordinate is time: then nothing is known on the last side.
    """

    operator: Operator
    solution: Callable[[Tensor], Tensor]
    low: tuple[float, float]
    high: tuple[float, float]
    evolves: bool


PINNS = {
    "poisson": Equation(poisson, poisson_solution, (0.0, 0.0), (1.0, 1.0), False),
    "cubic": Equation(cubic, cubic_solution, (0.0, 0.0), (1.0, 1.0), False),
    "burgers": Equation(burgers, burgers_solution, (-1.0, 0.0), (1.0, 1.0), True),
    "front": Equation(front, front_solution, (-1.0, 0.0), (1.0, 1.0), True),
}


def tanh_network(width: int, draw: Generator) -> nn.Sequential:
    """Make a network 2-width-width-1 with Glorot's weights and no biases at first."""
    linears = [nn.Linear(a, b, dtype=torch.float64) for a, b in ((2, width), (width, width), (width, 1))]
    for linear in linears:
        nn.init.xavier_normal_(linear.weight, generator=draw)
        nn.init.zeros_(linear.bias)
    return nn.Sequential(linears[0], nn.Tanh(), linears[1], nn.Tanh(), linears[2])


def side_points(equation: Equation, count: int, draw: Generator) -> Tensor:
    """Draw points on the sides, [count, 2], as many on each."""
    sides = [(0, 0.0), (0, 1.0), (1, 0.0)] + ([] if equation.evolves else [(1, 1.0)])
    unit = torch.rand(count, 2, generator=draw, dtype=torch.float64)
    for k, (axis, value) in enumerate(sides):
        unit[k :: len(sides), axis] = value
    return stretched(equation, unit)


def stretched(equation: Equation, unit: Tensor) -> Tensor:
    """Map the unit square to the rectangle."""
    low, high = (torch.tensor(corner, dtype=torch.float64) for corner in (equation.low, equation.high))
    return low + (high - low) * unit


def difference(u: Function, x: Tensor, value: Tensor) -> Tensor:
    """What a function lacks to a value at one point, [k]."""
    return u(x) - value


def make_pinn(name: str, seed: int, width: int) -> LeastSquares:
    """Make the problem of an equation: network and points are drawn by the seed."""
    equation, draw = PINNS[name], Generator().manual_seed(seed)
    module = tanh_network(width, draw)
    inside = stretched(equation, torch.rand(INTERIOR, 2, generator=draw, dtype=torch.float64))
    sides = side_points(equation, BOUNDARY, draw)
    axis = torch.linspace(0, 1, GRID, dtype=torch.float64)
    grid = stretched(equation, torch.cartesian_prod(axis, axis))
    exact = equation.solution(grid)

    @torch.no_grad()
    def error() -> float:
        return float((module(grid) - exact).norm() / exact.norm())

    terms = (Term(equation.operator, inside), Term(difference, (sides, equation.solution(sides))))
    return LeastSquares(module, terms, error)

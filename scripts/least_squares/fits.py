"""Fits of a few parameters whose valleys are long, narrow and curved, from many random starts."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from geonpg.kfac import Term
from geonpg.scripts.least_squares.pinns import difference
from geonpg.scripts.least_squares.problem import Function, LeastSquares

Model = Callable[[Tensor, Tensor], Tensor]  # parameters [p] and one input [d] -> [k]


class Formula(nn.Module):
    """A model in closed form whose parameters are one vector, `b`."""

    def __init__(self, model: Model, start: Tensor) -> None:
        super().__init__()
        self.model, self.b = model, nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.b, x)


def exponentials(b: Tensor, t: Tensor) -> Tensor:
    """A sum of exponentials by their amplitudes, then their rates."""
    amplitudes, rates = b.chunk(2)
    return (amplitudes * torch.exp(-rates * t)).sum(-1, keepdim=True)


def bumps(b: Tensor, x: Tensor) -> Tensor:
    """A sum of Gaussian bumps by their heights, centres, then the logarithms of their widths."""
    heights, centres, widths = b.chunk(3)
    return (heights * torch.exp(-0.5 * ((x - centres) / widths.exp()) ** 2)).sum(-1, keepdim=True)


def valley(u: Function, x: Tensor) -> Tensor:
    """Rosenbrock's two residuals; the point x is not used, because there is one only."""
    b = u(x)
    return torch.stack([10 * (b[1] - b[0] ** 2), 1 - b[0]])


def vector(*values: float) -> Tensor:
    """Return numbers in double precision."""
    return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True)
class Fit:
    """A problem without noise, whose loss at the solution is zero, and how its starts are drawn.

    terms: the residuals of a module with the model's parameters.
    centre, spread: means and deviations of the normally distributed starts.
    """

    model: Model
    terms: tuple[Term, ...]
    solution: Tensor
    centre: Tensor
    spread: Tensor


def curve(model: Model, solution: Tensor, x: Tensor) -> tuple[Term, ...]:
    """The residuals of a curve that goes through the solution's points."""
    y = torch.stack([model(solution, each) for each in x])
    return (Term(difference, (x, y)),)


def column(low: float, high: float, count: int) -> Tensor:
    """Inputs at equal distances, [count, 1]."""
    return torch.linspace(low, high, count, dtype=torch.float64).unsqueeze(1)


LANCZOS = vector(0.0951, 0.8607, 1.5576, 1.0, 3.0, 5.0)  # his example of 1956, whose rates data hardly tell apart
APART = vector(1.0, 1.0, 1.0, 0.3, 1.0, 4.0)
BUMPS = vector(1.0, 0.7, 0.9, -1.0, 0.0, 1.2, *vector(0.5, 0.4, 0.6).log())
FITS = {
    "three-exponentials": Fit(
        exponentials,
        curve(exponentials, LANCZOS, column(0.0, 1.15, 24)),
        LANCZOS,
        vector(1.0, 1.0, 1.0, 3.0, 3.0, 3.0),
        vector(1.0, 1.0, 1.0, 2.0, 2.0, 2.0),
    ),
    "exponentials-apart": Fit(
        exponentials,
        curve(exponentials, APART, column(0.0, 6.0, 40)),
        APART,
        vector(1.0, 1.0, 1.0, 2.0, 2.0, 2.0),
        vector(0.5, 0.5, 0.5, 1.0, 1.0, 1.0),
    ),
    "gaussian-bumps": Fit(
        bumps,
        curve(bumps, BUMPS, column(-3.0, 3.0, 60)),
        BUMPS,
        vector(1.0, 1.0, 1.0, -1.0, 0.0, 1.0, -0.7, -0.7, -0.7),
        vector(0.3, 0.3, 0.3, 0.6, 0.6, 0.6, 0.4, 0.4, 0.4),
    ),
    "rosenbrock": Fit(
        lambda b, x: b,
        (Term(valley, torch.zeros(1, 1, dtype=torch.float64)),),
        vector(1.0, 1.0),
        vector(0.0, 0.0),
        vector(2.0, 2.0),
    ),
}


def make_fit(name: str, seed: int) -> LeastSquares:
    """Make the problem of a fit with a start of its own for every seed."""
    fit, draw = FITS[name], Generator().manual_seed(seed)
    start = fit.centre + fit.spread * torch.randn(len(fit.centre), generator=draw, dtype=torch.float64)
    return LeastSquares(Formula(fit.model, start), fit.terms)

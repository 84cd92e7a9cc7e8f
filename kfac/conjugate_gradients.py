"""Conjugate gradients for g x = b, g positive definite: the recurrence, and a solve to a tolerance."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .flow import StepFailure

Linear = Callable[[Tensor], Tensor]  # [size] -> [size]


class ConjugateGradients:
    """The recurrence, one iteration at a time, from `start` or from zero.

    x and residual = b - g x are updated in place; p is the latest search direction.
    """

    def __init__(self, product: Linear, b: Tensor, precondition: Linear, start: Tensor | None = None) -> None:
        self.x = torch.zeros_like(b) if start is None else start.clone()
        self.residual = b.clone() if start is None else b - product(start)
        self.p, self._rho = torch.zeros_like(b), 1.0
        self._product, self._precondition = product, precondition

    def advance(self) -> float | None:
        """Take one iteration and return by how much it lowers x^T g x / 2 - b^T x.

        None, with x as it was, if that cannot be computed: the system is solved, or rounding has used up its digits.
        """
        z = self._precondition(self.residual)
        rho = float(self.residual @ z)
        self.p = torch.add(z, self.p, alpha=rho / self._rho)
        gp = self._product(self.p)
        curvature = float(self.p @ gp)
        if not (curvature > 0 and rho > 0 and math.isfinite(rho)):
            return None
        self.x.add_(self.p, alpha=rho / curvature)
        self.residual.sub_(gp, alpha=rho / curvature)
        self._rho = rho
        return 0.5 * rho * rho / curvature


def conjugate_gradients(product: Linear, b: Tensor, precondition: Linear, iterations: int, tolerance: float) -> Tensor:
    """Solve g x = b from zero in at most `iterations`; stop where the relative residual falls below `tolerance`.

    Starting from zero makes every iterate a Galerkin solution: it never overshoots in the metric. A system of which
    not even the first step can be computed fails; zero would look like its solution.
    """
    enough = tolerance * float(b.norm())
    if not math.isfinite(enough):
        raise StepFailure("the right-hand side of the linear system overflows")
    cg = ConjugateGradients(product, b, precondition)
    for i in range(iterations):
        if not float(cg.residual.norm()) > enough:
            break
        if cg.advance() is None:  # what is solved so far stands
            if i == 0 and not float(cg.p @ cg.p) == 0:  # a vector whose square is zero is too short to need a solution
                raise StepFailure("the metric has no positive curvature along the gradient")
            break
    return cg.x

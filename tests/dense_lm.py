"""Levenberg's and Marquardt's method written out densely, with geodesic acceleration: what ours is compared with.

Nielsen's damping (1999) and the guard of Transtrum and Sethna (2012).
"""

import torch
from torch import Tensor
from torch.func import jvp

from geonpg.scripts.least_squares.problem import Residuals

LEAST_RATIO, MOST_BEND = 1e-3, 0.75


class DenseLm:
    """The iteration from the parameters that a module has.

    geodesic: whether a step is corrected by half the acceleration.
    """

    def __init__(self, residuals: Residuals, geodesic: bool, damping: float = 1e-3) -> None:
        self.residuals, self.geodesic = residuals, geodesic
        self.y, self.damping, self.growth, self.rejected = residuals.start(), damping, 2.0, 0

    def vector(self, y: Tensor) -> Tensor:
        with torch.no_grad():
            return self.residuals.vector(self.residuals.named(y))

    @property
    def loss(self) -> float:
        return 0.5 * float(self.vector(self.y).square().sum())

    def step(self) -> float:
        """Take one step and return the loss after it; the Jacobian stays while the damping rises."""
        r, j = self.vector(self.y), self.residuals.jacobian(self.residuals.named(self.y)).detach()
        for _ in range(13):
            if self._attempt(r, j):
                return self.loss
            self.rejected += 1
            self.damping, self.growth = self.damping * self.growth, 2 * self.growth
        return self.loss

    def _attempt(self, r: Tensor, j: Tensor) -> bool:
        damped = j.T @ j + self.damping * torch.eye(len(self.y), dtype=torch.float64)
        v = -torch.linalg.solve(damped, j.T @ r)
        a = -torch.linalg.solve(damped, j.T @ self._bending(v)) if self.geodesic else torch.zeros_like(v)
        if float(a.norm()) > MOST_BEND * float(v.norm()):
            return False
        before, after = self.loss, 0.5 * float(self.vector(self.y + v + 0.5 * a).square().sum())
        predicted = -float(r @ j @ v) - 0.5 * float((j @ v).square().sum())
        ratio = (before - after) / predicted
        if not ratio > LEAST_RATIO:
            return False
        self.y = self.y + v + 0.5 * a
        self.damping *= max(1 / 3, 1 - (2 * min(ratio, 1.0) - 1) ** 3)
        self.growth = 2.0
        return True

    def _bending(self, v: Tensor) -> Tensor:
        """The second derivative of the residuals along v."""

        def along(y: Tensor) -> Tensor:
            return jvp(lambda z: self.residuals.vector(self.residuals.named(z)), (y,), (v,))[1]

        return jvp(along, (self.y,), (v,))[1].detach()

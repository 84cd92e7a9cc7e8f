"""The metric as a product of a matrix with itself, g = J^T J, and solves with g + damping I in its smaller form."""

from functools import cached_property

import torch
from torch import Tensor

from .factors import is_finite
from .flow import StepFailure

# Below this share of the largest entry on its diagonal a Cholesky factor is too rough for a refinement to mend.
LEAST_PIVOT = 1e-6


class Rows:
    """A matrix J with g = J^T J, in double precision: [rows, size].

    A system with g + damping I is as small as the fewer of both: with many rows it is solved by the normal equations,
    with few by their kernel form, (b - J^T (J J^T + damping I)^-1 J b) / damping. The difference in it loses digits
    as the damping falls: below 1e-10 of the largest eigenvalue there are seven left, below 1e-14 three.
    """

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix.double()
        self.wide = matrix.shape[0] < matrix.shape[1]
        self._tall = self.matrix.mT if self.wide else self.matrix

    @cached_property
    def gram(self) -> Tensor:
        """J^T J, or J J^T if that is smaller."""
        return self._tall.mT @ self._tall

    @cached_property
    def diagonal(self) -> Tensor:
        """The diagonal of g, kept away from zero: [size]."""
        squares = self.matrix.square().sum(0)
        return squares.clamp(min=max(float(squares.max()) * 1e-16, torch.finfo(torch.float64).tiny))

    @cached_property
    def scaled(self) -> "Rows":
        """The same metric in coordinates in which its diagonal is one."""
        return Rows(self.matrix / self.diagonal.sqrt())

    def factor(self, damping: float) -> Tensor:
        """Return the upper triangle U with U^T U = gram + damping I.

        Cholesky's, or, where that loses too many digits, that of a QR decomposition of J over sqrt(damping) I, which
        never forms the product.
        """
        damped = self.gram.clone()
        damped.diagonal().add_(damping)
        lower, info = torch.linalg.cholesky_ex(damped)
        pivots = lower.diagonal()
        if int(info) == 0 and float(pivots.min()) > LEAST_PIVOT * float(pivots.max()):
            return lower.mT
        identity = torch.eye(len(damped), dtype=torch.float64, device=damped.device)
        stacked = torch.cat([self._tall, damping**0.5 * identity])
        if not is_finite(stacked):
            raise StepFailure("the Jacobian is not finite")
        upper = torch.linalg.qr(stacked, mode="r").R
        if not float(upper.diagonal().abs().min()) > 0:
            raise StepFailure("the metric is singular, and there is no damping")
        return upper


class DampedRows:
    """Solves with J^T J + damping I at one damping.

    damping: zero only where there are no fewer rows than parameters.
    """

    def __init__(self, rows: Rows, damping: float) -> None:
        if rows.wide and damping <= 0:
            raise StepFailure("the metric is singular, and there is no damping")
        self._rows, self._damping, self._upper = rows, damping, rows.factor(damping)

    def solve(self, b: Tensor) -> Tensor:
        """Solve for x, with one step of refinement: b is [size] or [size, several]."""
        columns = b.double().reshape(len(b), -1)
        x = self._solve(columns)
        x += self._solve(columns - self.product(x))
        return x.reshape(b.shape).to(b.dtype)

    def product(self, x: Tensor) -> Tensor:
        """Multiply by the damped metric."""
        j = self._rows.matrix
        return j.mT @ (j @ x) + self._damping * x

    def _solve(self, b: Tensor) -> Tensor:
        if not self._rows.wide:
            return self._by_factor(b)
        j = self._rows.matrix
        return (b - j.mT @ self._by_factor(j @ b)) / self._damping

    def _by_factor(self, b: Tensor) -> Tensor:
        upper = self._upper
        half = torch.linalg.solve_triangular(upper.mT, b, upper=False)
        return torch.linalg.solve_triangular(upper, half, upper=True)

"""Ways to solve g x = b: by K-FAC, by conjugate gradients on the exact Fisher, densely, by the Jacobian."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from geonpg.errors import known, require

from .conjugate_gradients import conjugate_gradients
from .flow import solve_dense
from .jacobian import DampedRows, Rows


class System(Protocol):
    """What a solver may ask of the metric at one point."""

    def product(self, v: Tensor) -> Tensor:
        """Multiply v by g + damping I, exact on the batch."""

    def precondition(self, b: Tensor) -> Tensor:
        """Multiply b by K-FAC's approximation of (g + damping I)^-1."""

    def dense(self) -> Tensor:
        """Return g + damping I as a matrix."""

    def rows(self) -> Rows:
        """Return the Jacobian, whose product with itself is g."""

    def damped(self, make: Callable[[float], DampedRows]) -> DampedRows:
        """Return what `make` made of the damping when it was first asked for at this point."""


class Solver(ABC):
    """A way to solve the damped system."""

    # Is K-FAC its metric, to be measured anew at every point that a rule visits?
    factors_are_metric: ClassVar[bool] = False
    # Does it ask for the Jacobian as a matrix?
    uses_rows: ClassVar[bool] = False
    # Does every solution satisfy x^T (g + damping I) x = b^T x? Then it needs no calibration.
    galerkin: ClassVar[bool] = True

    @property
    @abstractmethod
    def uses_factors(self) -> bool:
        """Whether it needs the Kronecker factors at all."""

    @abstractmethod
    def solve(self, system: System, b: Tensor) -> Tensor:
        """Solve g x = b."""

    @abstractmethod
    def solve_both(self, system: System, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Solve g x = b and g y = c for little more than one solve's cost.

        y is a small correction to x and may be solved less exactly.
        """

    def norm(self, system: System, v: Tensor) -> float:
        """Compute the length of v as the damping measures it."""
        return float(v.norm())


class KfacSolver(Solver):
    """K-FAC itself is the metric: a solve costs two small matrix products per layer."""

    factors_are_metric: ClassVar[bool] = True
    galerkin: ClassVar[bool] = False

    @property
    def uses_factors(self) -> bool:
        """True: they are its metric."""
        return True

    def solve(self, system: System, b: Tensor) -> Tensor:
        """Multiply b by the inverse factors."""
        return system.precondition(b)

    def solve_both(self, system: System, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Solve one after the other; both are cheap."""
        return self.solve(system, b), self.solve(system, c)


class DenseSolver(Solver):
    """The exact metric as a matrix: small models and tests."""

    @property
    def uses_factors(self) -> bool:
        """False: the matrix is exact."""
        return False

    def solve(self, system: System, b: Tensor) -> Tensor:
        """Factorise the matrix and solve."""
        return solve_dense(system.dense(), b)

    def solve_both(self, system: System, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Solve both with one factorisation."""
        x, y = solve_dense(system.dense(), torch.stack([b, c], 1)).unbind(1)
        return x, y


@dataclass(frozen=True)
class JacobianSolver(Solver):
    """The exact metric by the Jacobian of every case: for residuals, and for batches and models of a few thousand.

    scaling: what the damping multiplies: "identity", or "diagonal" for that of the metric (Marquardt's), which suits
        parameters of very different sizes.
    """

    uses_rows: ClassVar[bool] = True
    scaling: str = "identity"

    def __post_init__(self) -> None:
        known("scaling", self.scaling, ("identity", "diagonal"))

    @property
    def uses_factors(self) -> bool:
        """False: the metric is exact."""
        return False

    def solve(self, system: System, b: Tensor) -> Tensor:
        """Solve with the point's factorisation."""
        if self.scaling == "identity":
            return system.damped(lambda damping: DampedRows(system.rows(), damping)).solve(b)
        root = system.rows().diagonal.sqrt().reshape(-1, *[1] * (b.ndim - 1))
        factorised = system.damped(lambda damping: DampedRows(system.rows().scaled, damping))
        return (factorised.solve(b.double() / root) / root).to(b.dtype)

    def solve_both(self, system: System, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Solve for both at once."""
        x, y = self.solve(system, torch.stack([b, c], 1)).unbind(1)
        return x, y

    def norm(self, system: System, v: Tensor) -> float:
        """Compute the length of v, in units of the diagonal if that is what is damped."""
        return float(v.norm() if self.scaling == "identity" else (v * system.rows().diagonal.sqrt()).norm())


@dataclass(frozen=True)
class CgSolver(Solver):
    """Conjugate gradients on the exact damped Fisher, K-FAC preconditioned or plain.

    preconditioned: by K-FAC, which saves iterations; False is plain CG, as in TRPO.
    iterations: of a solve, at most (5 to 50).
    correction_iterations: of the correction of `geof` (1 to 5); with the preconditioner two already remove most of what
        ten would (docs/geometry.md).
    tolerance: the relative residual at which it stops (1e-10 to 1e-3).
    """

    preconditioned: bool = True
    iterations: int = 10
    correction_iterations: int = 2
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        require(self.iterations >= 1, f"iterations must be at least 1, not {self.iterations}")
        few = self.correction_iterations
        require(few >= 1, f"correction_iterations must be at least 1, not {few}")

    @property
    def uses_factors(self) -> bool:
        """Whether K-FAC preconditions it."""
        return self.preconditioned

    def _run(self, system: System, b: Tensor, iterations: int) -> Tensor:
        precondition = system.precondition if self.preconditioned else torch.clone
        return conjugate_gradients(system.product, b, precondition, iterations, self.tolerance)

    def solve(self, system: System, b: Tensor) -> Tensor:
        """Run at most `iterations` iterations from zero."""
        return self._run(system, b, self.iterations)

    def solve_both(self, system: System, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Solve for x in full, and for y in `correction_iterations`."""
        return self.solve(system, b), self._run(system, c, self.correction_iterations)


SOLVERS: dict[str, Solver] = {
    "kfac": KfacSolver(),
    "pcg": CgSolver(),
    "cg": CgSolver(preconditioned=False, correction_iterations=5),
    "dense": DenseSolver(),
    "jacobian": JacobianSolver(),
}

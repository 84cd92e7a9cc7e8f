"""What the flow of a network knows at one parameter vector, and what it takes from update to update."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from geonpg.errors import require

from .control import Controller
from .fisher import FactorMemory, KroneckerFisher
from .jacobian import DampedRows, Rows
from .metric import Bending, Metric
from .network import Network
from .ranks import ALONE, Ranks
from .signal import Signal
from .solvers import Solver


@dataclass(frozen=True)
class Geometry:
    """What stays the same from update to update; see `NaturalGradient` for the settings."""

    network: Network
    fisher: KroneckerFisher
    solver: Solver
    alpha: float = 0.0
    calibrate: bool = True
    gradient_averaging: float = 0.0
    cautious: bool = False
    ranks: Ranks = ALONE


@dataclass(frozen=True)
class FlowMemory:
    """What earlier updates leave behind."""

    gradient: Tensor | None = None  # averaged, not yet unbiased
    seen: int = 0  # how many gradients it has averaged
    factors: FactorMemory = field(default_factory=FactorMemory)
    direction: Tensor | None = None  # the last velocity over the root of the descent that it claimed
    signal: Signal = field(default_factory=Signal)  # what fresh batches have said of such directions


def check_together(geometry: Geometry, control: Controller) -> None:
    """Raise Refused for settings that are legal alone and not together."""
    alone = geometry.ranks.size == 1 or not geometry.solver.uses_rows
    require(alone, "solver 'jacobian' works in one process: choose kfac, pcg, cg or dense")
    # an average of gradients promises what this batch does not keep, and no damping would mend that
    own = geometry.gradient_averaging == 0 or not control.follows_ratio
    require(own, "LevenbergMarquardt needs the batch's own gradient: choose gradient_averaging = 0")


class Point:
    """Everything known of the flow at one parameter vector; the system its solver sees.

    With parameters that were frozen since the optimiser was made, that system is the part of it that is `trained`:
    nothing points along the others, so no solution does.
    """

    def __init__(
        self, metric: Metric, memory: FlowMemory, covector: Tensor, geometry: Geometry, damping: float
    ) -> None:
        self.metric, self.memory, self._geometry, self._damping = metric, memory, geometry, damping
        self._trained = geometry.network.layout.trained()
        self.covector = self.on_trained(covector)
        self._last_first: tuple[Tensor, Tensor] | None = None
        self._rows: Rows | None = None
        self._damped: DampedRows | None = None

    def with_damping(self, damping: float) -> "Point":
        """Return this point with another damping, and everything that does not depend on it."""
        memory, geometry = self.memory, self._geometry
        if geometry.solver.uses_factors:
            factors = geometry.fisher.invert(memory.factors, damping, self.covector.dtype)
            memory = replace(memory, factors=factors)
        point = Point(self.metric, memory, self.covector, geometry, damping)
        point._last_first, point._rows = self._last_first, self._rows
        return point

    def on_trained(self, v: Tensor) -> Tensor:
        """Set v to zero for every frozen parameter."""
        return v if self._trained is None else v * self._trained

    def product(self, v: Tensor) -> Tensor:
        """Multiply v by g + damping I."""
        return torch.add(self.on_trained(self.metric.product(v)), v, alpha=self._damping)

    def precondition(self, b: Tensor) -> Tensor:
        """Multiply b by K-FAC's damped inverse."""
        return self.on_trained(self._geometry.fisher.solve(self.memory.factors, b))

    def dense(self) -> Tensor:
        """Return g + damping I as a matrix, computed once; frozen parameters have rows of the identity."""
        return self._dense

    @cached_property
    def _dense(self) -> Tensor:
        g = self.metric.dense()
        if self._trained is not None:
            g *= self._trained.outer(self._trained)
            g.diagonal().add_(1 - self._trained)
        g.diagonal().add_(self._damping)
        return g

    def rows(self) -> Rows:
        """Return the Jacobian of every case, computed once; nothing depends on frozen parameters."""
        if self._rows is None:
            self._rows = Rows(self.on_trained(self.metric.rows()))
        return self._rows

    def damped(self, make: Callable[[float], DampedRows]) -> DampedRows:
        """Return the Jacobian with this point's damping, factorised once."""
        if self._damped is None:
            self._damped = make(self._damping)
        return self._damped

    def bending(self, v: Tensor) -> Bending:
        """Compute how the outputs bend along v."""
        bending = self.metric.bending(v)
        self._last_first = (v, bending.r)
        return bending if self._trained is None else replace(bending, covector=self.on_trained(bending.covector))

    def first(self, v: Tensor) -> Tensor:
        """Compute J v, remembered for the last v."""
        if self._last_first is None or self._last_first[0] is not v:
            self._last_first = (v, self.metric.linearisation.first(v))
        return self._last_first[1]

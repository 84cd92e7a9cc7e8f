"""The natural-gradient flow of a network on one batch: what `NaturalGradient` integrates in one update.

y, v, a and covectors are flat, [size].
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from .batch import Batch
from .factors import is_finite
from .fisher import FactorMemory
from .flow import StepFailure, VisitingFlow
from .metric import Bending, Metric
from .point import FlowMemory, Geometry, Point

# A step goes at most this part of the way to the edge of the output family's domain.
DOMAIN_SHARE = 0.5


@dataclass(frozen=True)
class Correction:
    """What calibration found: its factor, and the second-order residual without and with the correction."""

    kappa: float
    residual_before: float
    residual_after: float


class NetworkFlow(VisitingFlow[Point]):
    """The flow of one update.

    Gradient and factors are averaged over updates. That memory stays fixed during the step: at every
    point that a rule visits, the point's own value is mixed with what came before the step.

    base: the point where the step starts; `at(base).memory` is what to keep for the next update.
    """

    def __init__(
        self, geometry: Geometry, batch: Batch, base: Tensor, memory: FlowMemory, damping: float, generator: Generator
    ) -> None:
        super().__init__(base)
        self.geometry, self.batch, self.memory = geometry, batch, memory
        self.damping, self._generator, self._draws = damping, generator, generator.get_state()
        self.correction: Correction | None = None
        self.points = 0  # where gradient and metric were computed

    def with_damping(self, damping: float) -> "NetworkFlow":
        """Return this flow with another damping; what is known at the base point is not computed anew."""
        flow = NetworkFlow(self.geometry, self.batch, self.base, self.memory, damping, self._generator)
        flow._draws, flow.points = self._draws, self.points
        if self._base_point is not None:  # unless its factors could not be inverted with this damping
            flow._base_point = self._base_point.with_damping(damping)
        return flow

    @torch.no_grad()
    def visit(self, y: Tensor) -> Point:
        """Compute gradient, metric and factors at y."""
        with torch.enable_grad():
            _, gradient = self.batch.evaluate(y)
        if not is_finite(gradient):
            raise StepFailure("the gradient is not finite")
        self.points += 1
        geometry = self.geometry
        metric = Metric(self.batch.linearise(y), geometry.fisher.family, geometry.alpha, geometry.ranks)
        decay, seen = geometry.gradient_averaging, self.memory.seen + 1
        past = gradient.new_zeros(()) if self.memory.gradient is None else self.memory.gradient
        average = decay * past + (1 - decay) * gradient
        before = self.memory
        signal = before.signal if before.direction is None else before.signal.heard(-float(gradient @ before.direction))
        memory = FlowMemory(average, seen, self._factors(y, metric), before.direction, signal)
        covector = average / (1 - decay**seen)
        return Point(metric, memory, covector, geometry, self.damping)

    def _factors(self, y: Tensor, metric: Metric) -> FactorMemory:
        """The factors that count at y: those of before, of the base point, or observed anew."""
        solver, fisher, before = self.geometry.solver, self.geometry.fisher, self.memory.factors
        if not solver.uses_factors:
            return before
        if y is not self.base and not solver.factors_are_metric:
            return self.at(self.base).memory.factors
        due = self.memory.seen % fisher.settings.update_every == 0 or before.damping != self.damping
        if before.inverses and not due:
            return before
        factors = fisher.remember(before, fisher.observe(metric.linearisation, self._draws_for(y)))
        return fisher.invert(factors, self.damping, y.dtype)

    def _draws_for(self, y: Tensor) -> Generator:
        """The generator itself for the base point, for other points one in the state that it had there.

        With draws of their own two points would differ by noise, however close they are.
        """
        if y is self.base:
            return self._generator
        again = Generator(device=self._generator.device)
        again.set_state(self._draws)
        return again

    def velocity(self, y: Tensor) -> Tensor:
        """Solve for v = -g^-1 dL, dL being the averaged gradient."""
        point = self.at(y)
        return self.geometry.solver.solve(point, -point.covector)

    def acceleration(self, y: Tensor, v: Tensor) -> Tensor:
        """Solve for Gamma(v, v), and calibrate its length."""
        point = self.at(y)
        bending = point.bending(v)
        return self._calibrated(point, bending, self.geometry.solver.solve(point, bending.covector))

    def velocity_and_acceleration(self, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Solve for the velocity and for Gamma(v, v) together, and calibrate the latter."""
        point = self.at(y)
        bending = point.bending(point.on_trained(v))  # a layer that moved in the last step may be frozen now
        velocity, a = self.geometry.solver.solve_both(point, -point.covector, bending.covector)
        return velocity, self._calibrated(point, bending, a)

    def _calibrated(self, point: Point, bending: Bending, a: Tensor) -> Tensor:
        """The correction at its least-squares length, which never increases the residual."""
        residual = point.metric.inner(bending.residual, bending.residual)
        if self.geometry.solver.galerkin:
            # |r - J a|^2 = |r|^2 - 2 c.a + a.g.a, and a.g.a = c.a - damping |a|^2: already no longer
            # than least squares would make it, so kappa clips to one and no further pass is needed
            damped = self.damping * self.geometry.solver.norm(point, a) ** 2
            kappa, after = 1.0, residual - float(bending.covector @ a) - damped
        else:
            a, kappa, after = self._scaled(point, bending, a)
        self.correction = Correction(kappa, residual**0.5, max(after, 0.0) ** 0.5)
        return a

    @torch.no_grad()
    def _scaled(self, point: Point, bending: Bending, a: Tensor) -> tuple[Tensor, float, float]:
        """a with its network part scaled, the factor, and the squared residual that is left.

        The free log std, whose block is exact, keeps factor one.
        """
        metric, free = point.metric, self.geometry.fisher.free
        moved = metric.linearisation.first(a)
        network, moved_network = a.clone(), moved.clone()
        if free is not None:
            network[free] = 0
            moved_network[..., moved.shape[-1] // 2 :] = 0
        length = metric.inner(moved_network, moved_network)
        best = float(bending.covector @ network) / length if length > 0 else 1.0
        kappa = min(max(best, 0.0), 1.0) if self.geometry.calibrate else 1.0
        left = bending.residual - moved + (1 - kappa) * moved_network
        return a - (1 - kappa) * network, kappa, metric.inner(left, left)

    def after(self, v: Tensor) -> FlowMemory:
        """Return what to keep of a step along v for the next update."""
        claimed, memory = -self.slope(self.base, v), self.at(self.base).memory
        if not self.geometry.cautious or claimed <= 0:
            return memory
        return replace(memory, direction=v / math.sqrt(claimed))

    def share(self, y: Tensor) -> float:
        """Return the share that fresh batches have confirmed; one if steps are not cautious."""
        return self.at(y).memory.signal.share if self.geometry.cautious else 1.0

    def remembered_speed_squared(self, y: Tensor, v: Tensor) -> float:
        """Compute v^T g v by the averaged factors with their damping, whose inverse made v of the covector."""
        if not self.geometry.cautious or not self.geometry.solver.factors_are_metric:
            return 0.0
        return -self.slope(y, v)

    def speed_squared(self, y: Tensor, v: Tensor) -> float:
        """Compute v^T g v, exact on the batch and without damping."""
        point = self.at(y)
        r = point.first(v)
        return point.metric.inner(r, r)

    @torch.no_grad()
    def divergence(self, y: Tensor, new: Tensor) -> float:
        """Compute the mean KL(y || new) over the batch."""
        z, geometry = self.at(y).metric.linearisation.z, self.geometry
        kl = geometry.fisher.family.kl(z, self.batch.outputs(new))
        return geometry.ranks.number(float(kl.mean()))

    def loss(self, y: Tensor) -> float:
        """Compute the loss at y."""
        return self.batch.loss(y)

    def slope(self, y: Tensor, v: Tensor) -> float:
        """Compute the derivative of the averaged loss along v."""
        return float(self.at(y).covector @ v)

    def promises_nothing(self, v: Tensor) -> bool:
        """Whether a step along v from the base could not lower the loss by more than rounding, as at a minimum."""
        return abs(self.slope(self.base, v)) <= torch.finfo(v.dtype).eps * abs(self.loss(self.base))

    def norm(self, y: Tensor, v: Tensor) -> float:
        """Compute the length of v as the damping measures it."""
        return self.geometry.solver.norm(self.at(y), v)

    def step_limit(self, y: Tensor, v: Tensor) -> float:
        """Return half of the way along v to the edge of the output family's domain."""
        if self.geometry.alpha == 0:  # no family of ours ends there, and J v need not be known
            return math.inf
        point, family = self.at(y), self.geometry.fisher.family
        limit = family.domain_limit(point.metric.linearisation.z, point.first(v), point.metric.alpha)
        return DOMAIN_SHARE * self.geometry.ranks.least(limit)

"""The natural-gradient flow that Hessian-free optimisation follows during one update.

Gradient, line search and back-tracking see all training cases; the metric sees one chunk of them. Linear systems
are solved by truncated conjugate gradients with warm starts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from ..factors import is_finite
from ..flow import StepFailure, VisitingFlow
from .cases import Evaluation, Problem
from .chunk import CORRECTIONS, ChunkPoint, HessianFreeSettings
from .truncated import Truncation, back_track, truncated_cg

# The last solutions, by what was solved for: velocity "v" or acceleration "a".
Warm = dict[str, Tensor]
# The acceleration that `geof` asks for gets one iteration for so many of the velocity's.
CORRECTION_SHARE = 16


@dataclass(frozen=True)
class Candidate:
    """An iterate x of a solve, the end y of the full step that it makes, and the loss and error there."""

    x: Tensor
    y: Tensor
    evaluation: Evaluation


class HessianFreeFlow(VisitingFlow[ChunkPoint]):
    """The flow of one update.

    base: the point where the step starts.
    chunk: the number of the chunk that the metric sees.
    warm: the last update's solutions, from which the solves start.
    known: loss and error at the base point, where they are known.
    draw: the random numbers of the damping "diagonal".
    """

    def __init__(
        self,
        problem: Problem,
        settings: HessianFreeSettings,
        base: Tensor,
        damping: float,
        chunk: int,
        warm: Warm,
        known: Evaluation | None = None,
        draw: Generator | None = None,
    ) -> None:
        super().__init__(base)
        self.problem, self.settings, self.damping, self.chunk = problem, settings, damping, chunk
        self.warm, self.iterations = dict(warm), 0
        self.corrected = False  # whether there was a correction, and it was not dropped
        self._velocities: list[tuple[Tensor, Tensor]] = []  # at the base point and at the first midpoint
        self._draw = draw or Generator().manual_seed(0)
        self._at_base = known
        self._evaluated: tuple[Tensor, Evaluation] | None = None  # the latest point besides

    def visit(self, y: Tensor) -> ChunkPoint:
        """Compute gradient and metric at y."""
        return ChunkPoint(self.problem, self.settings, self.damping, y, self.chunk, self._draw)

    def velocity(self, y: Tensor) -> Tensor:
        """Solve for the velocity, at the base point or at a midpoint; candidates are full steps from the base point.

        A line search that shortens a midpoint step asks for the velocity between two points where it is known. There
        it is interpolated, which keeps the order of the step and saves a gradient and a solve for every trial.
        """
        between = self._between(y)
        if between is not None:
            (_, v), (_, w) = self._velocities
            return torch.lerp(v, w, between)
        point = self.at(y)
        best = self._solve(point, "v", -point.gradient, lambda x: x, self.settings.truncation)
        self._evaluated = best.y, best.evaluation
        self._velocities = [*self._velocities[:1], (y, best.x)]
        self.corrected = len(self._velocities) > 1  # the midpoint's corrects that of the base point
        return best.x

    def _between(self, y: Tensor) -> float | None:
        """How far y is from the base point to the first midpoint, if it lies between them."""
        if len(self._velocities) < 2:
            return None
        (base, _), (middle, _) = self._velocities
        whole, part = middle - base, y - base
        share = float(part @ whole) / float(whole @ whole)
        off = float((part - share * whole).norm())
        return share if 0 < share < 1 and off <= 1e-3 * float(whole.norm()) else None

    def acceleration(self, y: Tensor, v: Tensor) -> Tensor:
        """Solve for Gamma(v, v); zero if the correction is dropped."""
        return self._corrected(y, v, v, self.settings.truncation)

    def velocity_and_acceleration(self, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Solve for the velocity as for every rule, and spend a few iterations more on the acceleration.

        One solve for the sum of both (paper, eq. 8) leaves each of them undetermined. And the last displacement is
        not today's velocity: what they have in common is the velocity's projection on it, along which the connection
        is taken. Where they have little in common there is little correction (docs/optimizer.md).
        """
        velocity = self.velocity(y)
        few = max(1, self.iterations // CORRECTION_SHARE)
        last_only = replace(self.settings.truncation, iterations=few, spacing=math.inf)
        return velocity, self._corrected(y, velocity, self._projected(y, velocity, v), last_only)

    def _projected(self, y: Tensor, velocity: Tensor, v: Tensor) -> Tensor:
        """The part of the velocity that points along v, as the metric measures it."""
        lowered = self.at(y).metric.product(v)
        length = float(v @ lowered)
        return v * (float(velocity @ lowered) / length) if length > 0 else torch.zeros_like(v)

    def _corrected(self, y: Tensor, velocity: Tensor, along: Tensor, truncation: Truncation) -> Tensor:
        """Gamma(along, along), or zero where the full step is better without it and `guard` is on."""
        point, step = self.at(y), y + velocity
        plain = self.evaluation(step)
        covector = CORRECTIONS[self.settings.correction](point, along)
        best = self._solve(point, "a", covector, lambda x: velocity - 0.5 * x, truncation)
        self.corrected = best.evaluation.loss <= plain.loss or not self.settings.guard
        self._evaluated = (best.y, best.evaluation) if self.corrected else (step, plain)
        return best.x if self.corrected else torch.zeros_like(best.x)

    def _solve(
        self, point: ChunkPoint, name: str, b: Tensor, move: Callable[[Tensor], Tensor], truncation: Truncation
    ) -> Candidate:
        """The iterate whose full step `move`, from the base point, back-tracking finds best.

        The next solve starts from the last iterate, not from the best: that is where the work went.
        """
        start = self.settings.warm * self.warm[name] if name in self.warm else None
        found = truncated_cg(point.product, b, point.precondition, start, truncation)
        if not is_finite(found.kept[-1]):
            raise StepFailure("conjugate gradients did not stay finite")
        self.iterations += found.iterations
        self.warm[name] = found.kept[-1]
        candidates = (self._candidate(x, self.base + move(x)) for x in reversed(found.kept))
        return back_track(candidates, lambda candidate: candidate.evaluation.loss)

    def _candidate(self, x: Tensor, y: Tensor) -> Candidate:
        return Candidate(x, y, self.problem.evaluate(y))

    def evaluation(self, y: Tensor) -> Evaluation:
        """Evaluate loss and error on all cases; those of the base point and of the latest other point are known."""
        if y is self.base:
            self._at_base = self._at_base or self.problem.evaluate(y)
            return self._at_base
        if self._evaluated is None or not torch.equal(self._evaluated[0], y):
            self._evaluated = (y, self.problem.evaluate(y))
        return self._evaluated[1]

    def loss(self, y: Tensor) -> float:
        """Compute the regularised loss on all cases."""
        return self.evaluation(y).loss

    def slope(self, y: Tensor, v: Tensor) -> float:
        """Compute the derivative of the loss along v, on all cases."""
        return float(self.at(y).gradient @ v)

    def speed_squared(self, y: Tensor, v: Tensor) -> float:
        """Compute v^T (g + decay) v, without damping."""
        with torch.no_grad():
            return self.at(y).metric.quadratic(v) + float(self.problem.decays @ (v * v))

    @torch.no_grad()
    def divergence(self, y: Tensor, new: Tensor) -> float:
        """Compute KL(y || new) on the chunk."""
        at = self.at(y).metric.linearisation
        return float(self.problem.family.kl(at.z, self.problem.linearise(new, self.chunk).z).mean())

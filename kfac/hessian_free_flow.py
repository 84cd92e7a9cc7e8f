"""The natural-gradient flow that Hessian-free optimisation follows during one update.

Gradient, line search and back-tracking see all training cases; the metric sees one chunk of them. Linear systems
are solved by truncated conjugate gradients with warm starts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor

from geonpg.errors import choose, require

from .cases import Evaluation, Problem
from .control import LineSearch
from .factors import is_finite
from .flow import Flow, StepFailure
from .metric import Metric
from .truncated import Truncation, back_track, truncated_cg

# The last solutions, by what was solved for: velocity "v" or acceleration "a".
Warm = dict[str, Tensor]
# Iterations of the acceleration that `geof` asks for, as a part of the velocity's.
CORRECTION_SHARE = 16
PRECONDITIONER_POWER = 0.75


def identity(point: "ChunkPoint", generator: Generator) -> Tensor:
    """Damping gamma I."""
    return torch.ones_like(point.gradient)


def diagonal(point: "ChunkPoint", generator: Generator) -> Tensor:
    """Damping epsilon diag(g), the diagonal estimated from one draw per case; kept away from zero."""
    family, z = point.metric.family, point.metric.at.z
    estimate = point.problem.squared_gradients(point.metric.at, family.score(z, family.sample(z, generator)))
    return estimate.clamp(min=1e-3 * float(estimate.mean()))


def connection(point: "ChunkPoint", v: Tensor) -> Tensor:
    """g Gamma(v, v): the geodesic correction."""
    return point.metric.connection(v)


@torch.no_grad()
def perturbation(point: "ChunkPoint", v: Tensor) -> Tensor:
    """The full second-order perturbation (paper, appendix on the small-curvature approximation).

    With its delta theta_2 = -a / 2, a solves g a = 2 (H R + dL) d2z[v] + J^T H S, H = G being the loss's Hessian.
    """
    at, family = point.metric.at, point.metric.family
    r, s = at.second(v)
    curved = at.pullback_derivative(family.fisher(at.z, r) - family.score(at.z, point.targets), v)
    return (2 * curved + at.pullback(family.fisher(at.z, s))) / at.cases


DAMPINGS = {"identity": identity, "diagonal": diagonal}
CORRECTIONS = {"geodesic": connection, "perturb": perturbation}


@dataclass(frozen=True)
class HessianFreeSettings:
    """The defaults are the paper's.

    threshold: the damping below which higher-order rules are switched on; above it every rule is `ng`.
    guard: drop a correction whose full step is worse than the one without it; both losses are known anyway.
    """

    damping: float = 45.0
    threshold: float = math.inf
    damp: str = "identity"
    correction: str = "geodesic"
    alpha: float = 0.0
    guard: bool = True
    warm: float = 0.95
    truncation: Truncation = field(default_factory=Truncation)
    control: LineSearch = field(default_factory=LineSearch)

    def __post_init__(self) -> None:
        choose("damping", self.damp, DAMPINGS)
        choose("correction", self.correction, CORRECTIONS)
        require(self.damping > 0, f"damping must be positive, not {self.damping}")
        require(self.threshold >= 0, f"threshold must not be negative, not {self.threshold}")
        require(-1 <= self.alpha <= 1, f"alpha must lie in [-1, 1], not {self.alpha}")
        require(0 <= self.warm <= 1, f"warm must lie in [0, 1], not {self.warm}")


class ChunkPoint:
    """The flow at one parameter vector: the gradient on all cases, the damped metric on one chunk."""

    def __init__(
        self, problem: Problem, settings: HessianFreeSettings, damping: float, y: Tensor, chunk: int, draw: Generator
    ) -> None:
        self.problem, self.gradient = problem, problem.gradient(y)
        if not is_finite(self.gradient):
            raise StepFailure("the gradient is not finite")
        at = problem.linearise(y, chunk)
        self.metric, self.targets = Metric(at, problem.family, settings.alpha), problem.cases.parts[chunk][1]
        self._shift = torch.add(problem.decays, DAMPINGS[settings.damp](self, draw), alpha=damping)
        squares = problem.squared_gradients(at, problem.family.score(at.z, self.targets))
        self._preconditioner = (squares + self._shift).pow_(PRECONDITIONER_POWER)

    def product(self, v: Tensor) -> Tensor:
        return self.metric.product(v).addcmul_(self._shift, v)

    def precondition(self, b: Tensor) -> Tensor:
        return b / self._preconditioner


class HessianFreeFlow(Flow):
    """The flow of one update. The first point asked for is the base point, where the step starts."""

    def __init__(
        self,
        problem: Problem,
        settings: HessianFreeSettings,
        damping: float,
        chunk: int,
        warm: Warm,
        start: Evaluation | None = None,
        draw: Generator | None = None,
    ) -> None:
        """`start` is the evaluation at the base point, where it is known."""
        self.problem, self.settings, self.damping, self.chunk = problem, settings, damping, chunk
        self.warm, self.iterations = dict(warm), 0
        self.kept = False  # was there a correction, and was it not dropped?
        self._velocities: list[tuple[Tensor, Tensor]] = []  # at the base point and at the first midpoint
        self._start, self._draw = start, draw or Generator().manual_seed(0)
        self._base: tuple[Tensor, ChunkPoint] | None = None
        self._latest: tuple[Tensor, ChunkPoint] | None = None
        self._best: tuple[Tensor, Evaluation] | None = None

    def at(self, y: Tensor) -> ChunkPoint:
        for known in (self._base, self._latest):
            if known is not None and known[0] is y:
                return known[1]
        self._latest = None  # two points need the memory of two chunks, not of three
        self._latest = (y, ChunkPoint(self.problem, self.settings, self.damping, y, self.chunk, self._draw))
        self._base = self._base or self._latest
        return self._latest[1]

    def velocity(self, y: Tensor) -> Tensor:
        """At the base point and at midpoints; candidates are full steps from the base point.

        A line search that shortens a midpoint step asks for the velocity between two points where it is known. There
        it is interpolated, which keeps the order of the step and saves a gradient and a solve for every trial.
        """
        between = self._between(y)
        if between is not None:
            (_, v), (_, w) = self._velocities
            return torch.lerp(v, w, between)
        point = self.at(y)
        v = self._solve(point, "v", -point.gradient, lambda x: x, self.settings.truncation)
        self._velocities = [*self._velocities[:1], (y, v)]
        self.kept = len(self._velocities) > 1  # the midpoint's corrects that of the base point
        return v

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
        return self._corrected(y, v, v, self.settings.truncation)

    def velocity_and_acceleration(self, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The velocity as for every rule, and a few iterations more for the acceleration.

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
        point = self.at(y)
        plain, step = self.evaluation(y + velocity), y + velocity
        covector = CORRECTIONS[self.settings.correction](point, along)
        a = self._solve(point, "a", covector, lambda x: velocity - 0.5 * x, truncation)
        better = self._best is not None and self._best[1].loss <= plain.loss
        self.kept = better or not self.settings.guard
        if self.kept:
            return a
        self._best = (step, plain)
        return torch.zeros_like(a)

    def _solve(
        self, point: ChunkPoint, name: str, b: Tensor, move: Callable[[Tensor], Tensor], truncation: Truncation
    ) -> Tensor:
        """The iterate whose full step `move`, from the base point, back-tracking finds best.

        The next solve starts from the last iterate, not from the best: that is where the work went.
        """
        start = self.settings.warm * self.warm[name] if name in self.warm else None
        found = truncated_cg(point.product, b, point.precondition, start, truncation)
        if not is_finite(found.kept[-1]):
            raise StepFailure("conjugate gradients did not stay finite")
        self.iterations += found.iterations
        self.warm[name] = found.kept[-1]
        assert self._base is not None
        base, self._best = self._base[0], None
        best, _ = back_track(found.kept, lambda x: self._try(base + move(x)))
        return best

    def _try(self, y: Tensor) -> float:
        """The loss at a candidate; the best candidate's is remembered for the line search."""
        evaluation = self.problem.evaluate(y)
        if self._best is None or not evaluation.loss > self._best[1].loss:
            self._best = (y, evaluation)
        return evaluation.loss

    def evaluation(self, y: Tensor) -> Evaluation:
        if self._base is not None and y is self._base[0]:
            self._start = self._start or self.problem.evaluate(y)
            return self._start
        if self._best is None or not torch.equal(self._best[0], y):
            self._best = (y, self.problem.evaluate(y))
        return self._best[1]

    def loss(self, y: Tensor) -> float:
        return self.evaluation(y).loss

    def slope(self, y: Tensor, v: Tensor) -> float:
        return float(self.at(y).gradient @ v)

    def speed_squared(self, y: Tensor, v: Tensor) -> float:
        """v^T (g + decay) v, without damping."""
        with torch.no_grad():
            return self.at(y).metric.quadratic(v) + float(self.problem.decays @ (v * v))

    @torch.no_grad()
    def divergence(self, y: Tensor, new: Tensor) -> float:
        at = self.at(y).metric.at
        return float(self.problem.family.kl(at.z, self.problem.linearise(new, self.chunk).z).mean())

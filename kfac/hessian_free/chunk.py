"""The settings of Hessian-free optimisation, and the damped metric that its linear systems see on one chunk."""

import math
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from geonpg.errors import choose, require

from ..control import Controller, LineSearch
from ..factors import is_finite
from ..flow import StepFailure
from ..levenberg_marquardt import Quarters, Schedule
from ..metric import Metric
from .cases import Problem
from .truncated import Truncation

# The preconditioner is (mean squared gradient + damping)^this, as in Martens (2010).
PRECONDITIONER_POWER = 0.75


def identity(point: "ChunkPoint", generator: Generator) -> Tensor:
    """Damping gamma I."""
    return torch.ones_like(point.gradient)


def diagonal(point: "ChunkPoint", generator: Generator) -> Tensor:
    """Damping epsilon diag(g), the diagonal estimated from one draw per case and kept away from zero."""
    at, family = point.metric.linearisation, point.metric.family
    estimate = point.problem.squared_gradients(at, family.score(at.z, family.sample(at.z, generator)))
    return estimate.clamp(min=1e-3 * float(estimate.mean()))


def connection(point: "ChunkPoint", v: Tensor) -> Tensor:
    """Compute g Gamma(v, v), the geodesic correction."""
    return point.metric.connection(v)


@torch.no_grad()
def perturbation(point: "ChunkPoint", v: Tensor) -> Tensor:
    """Compute the full second-order perturbation (paper, appendix on the small-curvature approximation).

    With its delta theta_2 = -a / 2, a solves g a = 2 (H R + dL) d2z[v] + J^T H S, H = G being the loss's Hessian.
    """
    at, family = point.metric.linearisation, point.metric.family
    r, s = at.second(v)
    curved = at.pullback_derivative(family.fisher(at.z, r) - family.score(at.z, point.targets), v)
    return (2 * curved + at.pullback(family.fisher(at.z, s))) / at.cases


DAMPINGS = {"identity": identity, "diagonal": diagonal}
CORRECTIONS = {"geodesic": connection, "perturb": perturbation}


@dataclass(frozen=True)
class HessianFreeSettings:
    """Settings of `HessianFree`; the defaults are the paper's.

    damping: where the damping starts (typically 1 to 50); from then on it follows the model's predictions.
    threshold: the damping below which higher-order rules are switched on (0.1 to 10); above it every rule is `ng`.
    damp: what the damping multiplies: "identity", or "diagonal" for that of the metric.
    correction: "geodesic" (the paper's), or "perturb" for the full second-order perturbation.
    alpha: the connection, in [-1, 1]; 0 Levi-Civita, 1 exponential, -1 mixture.
    guard: drop a correction whose full step is worse than the one without it; both losses are known anyway.
    warm: the part of the last solution that a solve starts from, in [0, 1]; usually 0.9 to 1.
    truncation: when conjugate gradients stop, and which iterates they keep.
    control: how far to go along the rule's curve.
    schedule: how the damping follows the ratio of actual and predicted reduction: `Quarters()`, or `Nielsen()`.
    """

    damping: float = 45.0
    threshold: float = math.inf
    damp: str = "identity"
    correction: str = "geodesic"
    alpha: float = 0.0
    guard: bool = True
    warm: float = 0.95
    truncation: Truncation = field(default_factory=Truncation)
    control: Controller = field(default_factory=LineSearch)
    schedule: Schedule = field(default_factory=Quarters)

    def __post_init__(self) -> None:
        choose("damping", self.damp, DAMPINGS)
        choose("correction", self.correction, CORRECTIONS)
        require(self.damping > 0, f"damping must be positive, not {self.damping}")
        require(self.threshold >= 0, f"threshold must not be negative, not {self.threshold}")
        require(-1 <= self.alpha <= 1, f"alpha must lie in [-1, 1], not {self.alpha}")
        require(0 <= self.warm <= 1, f"warm must lie in [0, 1], not {self.warm}")
        own = "HessianFree has a schedule of its own: choose a LineSearch, and schedule=Nielsen()"
        require(not self.control.follows_ratio, own)


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
        """Multiply v by the metric plus decay and damping."""
        return self.metric.product(v).addcmul_(self._shift, v)

    def precondition(self, b: Tensor) -> Tensor:
        """Divide b by an estimate of the diagonal of what `product` multiplies by."""
        return b / self._preconditioner

"""How far to go along a rule's curve: a trust region, a line search, or a constant step."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from geonpg.errors import require

from .damping import Damping
from .factors import is_finite
from .flow import Flow, StepFailure

Curve = Callable[[float], Tensor]


@dataclass(frozen=True)
class Move:
    """Where a step along velocity v ended; one that was not accepted stays where it began, with h = 0."""

    y: Tensor
    v: Tensor
    h: float
    accepted: bool
    predicted_kl: float = math.nan
    actual_kl: float = math.nan
    halvings: int = 0
    gain_ratio: float = math.nan  # actual over predicted reduction of the loss


def finite(curve: Curve, h: float) -> Tensor | None:
    """Return the curve at h, or None where it has no finite value."""
    try:
        y = curve(h)
    except StepFailure:
        return None
    return y if is_finite(y) else None


def tried(flow: Flow, y: Tensor, curve: Curve, h: float) -> tuple[Tensor | None, float]:
    """Return the curve at h and the actual KL of that step; None and infinity where it has no finite value."""
    new = finite(curve, h)
    return new, math.inf if new is None else flow.divergence(y, new)


@dataclass(frozen=True)
class Controller(ABC):
    """How the step size h is chosen, once the velocity is known.

    lr: the longest step it may choose; 1 is the natural length of a natural-gradient step.
    """

    # Does the damping follow the actual over the predicted change of the loss?
    follows_ratio: ClassVar[bool] = False

    lr: float = 1.0

    def __post_init__(self) -> None:
        require(math.isfinite(self.lr) and self.lr >= 0, f"lr must be finite and not negative, not {self.lr}")

    @abstractmethod
    def move(self, flow: Flow, y: Tensor, v: Tensor, curve: Curve) -> Move:
        """Choose h, and return where the rule's curve is at that h."""

    @property
    def attempts(self) -> int:
        """How often a step is tried at once, each time with the next damping."""
        return 1

    def next_damping(self, damping: Damping, move: Move) -> Damping:
        """Return the damping after a step: raised by a rejected one, which accepted ones take back."""
        return damping.relaxed() if move.accepted else damping.raised()


@dataclass(frozen=True)
class Constant(Controller):
    """A constant step: h = lr, or less where the manifold ends; accepted if every number is finite.

    lr: the step (0.01 to 1).
    """

    def move(self, flow: Flow, y: Tensor, v: Tensor, curve: Curve) -> Move:
        """Take the step, whatever it does to the loss."""
        h = min(flow.share(y) * self.lr, flow.step_limit(y, v))
        new = finite(curve, h)
        return Move(y, v, 0.0, False) if new is None else Move(new, v, h, True)


def radius_of(flow: Flow, y: Tensor, v: Tensor, speed: float, max_kl: float) -> float | None:
    """Return the step of this predicted KL; None if that is not finite.

    A batch may not see a direction that earlier ones would: their metric counts where it is the larger.
    """
    fastest = max(speed, flow.remembered_speed_squared(y, v))
    if not math.isfinite(speed) or not math.isfinite(fastest):
        return None
    return math.sqrt(2 * max_kl / fastest) if fastest > 0 else math.inf


@dataclass(frozen=True)
class TrustRegion(Controller):
    """A step of limited KL: h = min(lr, sqrt(2 max_kl / v^T g v)), by the exact quadratic form.

    The step is accepted if it is finite and its actual KL is at most `slack` times `max_kl`; otherwise
    h is halved along the rule's own curve.

    lr: the longest step (typically 1; in reinforcement learning the limit on the KL decides).
    max_kl: how far one step may move the output distribution (1e-4 to 0.1).
    slack: by which factor the actual KL may exceed it (1 to 2).
    max_halvings: how often to try again before the step is rejected (5 to 10).
    """

    max_kl: float = 0.01
    slack: float = 1.5
    max_halvings: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.max_kl > 0, f"max_kl must be positive, not {self.max_kl}")
        require(self.slack >= 1, f"slack must be at least 1, not {self.slack}")
        require(self.max_halvings >= 0, f"max_halvings must not be negative, not {self.max_halvings}")

    def speed_squared(self, flow: Flow, y: Tensor, v: Tensor) -> float:
        """Compute v^T g v, by which the KL is predicted."""
        return flow.speed_squared(y, v)

    def move(self, flow: Flow, y: Tensor, v: Tensor, curve: Curve) -> Move:
        """Halve h until the actual KL fits."""
        speed, share = self.speed_squared(flow, y, v), flow.share(y)
        radius = radius_of(flow, y, v, speed, self.max_kl)
        if radius is None:
            return Move(y, v, 0.0, False)
        h = min(share * self.lr, share * radius, flow.step_limit(y, v))
        for halvings in range(self.max_halvings + 1):
            new, actual = tried(flow, y, curve, h)
            if new is not None and actual <= self.slack * self.max_kl:
                return Move(new, v, h, True, 0.5 * h**2 * speed, actual, halvings)
            h *= 0.5
        return Move(y, v, 0.0, False, halvings=self.max_halvings)


@dataclass(frozen=True)
class SolverRegion(TrustRegion):
    """A trust region by the metric that the velocity was solved with, damping included, as ACKTR was published.

    With K-FAC that may predict a small part of the KL that the batch sees; only steps far beyond it are halved.

    lr, max_kl, max_halvings: as in `TrustRegion`.
    slack: by which factor the actual KL may exceed `max_kl` (10 to 100).
    """

    slack: float = 20.0

    def speed_squared(self, flow: Flow, y: Tensor, v: Tensor) -> float:
        """Compute -dL v, which is v^T (g + damping) v, because v = -(g + damping)^-1 dL."""
        return -flow.slope(y, v)


@dataclass(frozen=True)
class KlSearch(Controller):
    """A step whose actual KL is `max_kl`, searched for along the rule's own curve, longer or shorter than predicted.

    Where KL grows as a power of h the secant in logarithms finds h in two or three evaluations of the curve; each takes
    a forward pass, for `mid` a gradient and a solve too. For few, long steps, where the prediction is off.

    lr: the longest step (typically 1; the KL decides).
    max_kl: how far one step moves the output distribution (0.01 to 0.3).
    tolerance: by which part of it the actual KL may differ (0.01 to 0.1).
    slack: by which factor it may exceed `max_kl` if the search ends before that (1 to 2).
    growth: how many times as long as predicted a step may become (1 to 4).
    max_tries: evaluations of the curve before the best step so far is taken (4 to 12).
    """

    max_kl: float = 0.03
    tolerance: float = 0.02
    slack: float = 1.5
    growth: float = 2.0
    max_tries: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.max_kl > 0, f"max_kl must be positive, not {self.max_kl}")
        require(0 < self.tolerance < 1, f"tolerance must lie between 0 and 1, not {self.tolerance}")
        require(self.slack >= 1, f"slack must be at least 1, not {self.slack}")
        require(self.growth >= 1, f"growth must be at least 1, not {self.growth}")
        require(self.max_tries >= 1, f"max_tries must be at least 1, not {self.max_tries}")

    def move(self, flow: Flow, y: Tensor, v: Tensor, curve: Curve) -> Move:
        """Search for the step; one that is finite and within `slack` at least is accepted."""
        speed, share = flow.speed_squared(y, v), flow.share(y)
        radius = radius_of(flow, y, v, speed, self.max_kl)
        if radius is None:
            return Move(y, v, 0.0, False)
        longest = min(share * self.lr, share * self.growth * radius, flow.step_limit(y, v))
        search, best = Bracket(self.max_kl * share**2, longest), Move(y, v, 0.0, False)
        h = min(share * radius, longest)
        for tries in range(self.max_tries):
            new, actual = tried(flow, y, curve, h)
            if new is not None and actual <= self.slack * search.target and search.is_better(actual, best):
                best = Move(new, v, h, True, 0.5 * h**2 * speed, actual, tries)
            there = abs(actual - search.target) <= self.tolerance * search.target
            if there or (h >= longest and actual <= search.target) or h == 0:
                break
            h = search.next(h, actual)
        return best


class Bracket:
    """Steps between which a KL is reached, and where to look for it next: by the secant of the logarithms.

    target: the KL that is searched for.
    longest: the longest step.
    """

    def __init__(self, target: float, longest: float) -> None:
        self.target, self.low, self.high, self.longest = target, 0.0, math.inf, longest
        self._last: tuple[float, float] | None = None  # logarithms of a step and its KL

    def is_better(self, actual: float, best: Move) -> bool:
        """Whether a step of this KL is nearer to the target than the best so far."""
        return not best.accepted or abs(actual - self.target) < abs(best.actual_kl - self.target)

    def next(self, h: float, actual: float) -> float:
        """Return the step to try after one of this KL."""
        if actual > self.target:
            self.high = min(self.high, h)
        else:
            self.low = max(self.low, h)
        if not 0 < actual < math.inf:
            return 0.5 * (self.low + min(self.high, 2 * self.longest)) if actual else self.longest
        here, order = (math.log(h), math.log(actual)), 2.0  # KL is quadratic where steps are short
        if self._last is not None and here[0] != self._last[0]:
            order = min(max((here[1] - self._last[1]) / (here[0] - self._last[0]), 1.0), 8.0)
        self._last = here
        found = h * (self.target / actual) ** (1 / order)
        if not self.low < found < self.high:
            found = math.sqrt(self.low * self.high) if self.low > 0 else 0.5 * self.high
        return min(found, self.longest)


@dataclass(frozen=True)
class LineSearch(Controller):
    """Armijo back-tracking on the loss along the rule's curve, starting at lr.

    For losses without noise: two evaluations of a noisy one cannot be compared.

    lr: the first step tried (typically 1).
    shrink: what a step that does not lower the loss enough is multiplied by (0.5 to 0.9).
    armijo: the part of the decrease that the slope promises which is enough (1e-4 to 0.1).
    max_steps: how many steps to try before the step is rejected (20 to 100).
    """

    shrink: float = 0.8
    armijo: float = 0.01
    max_steps: int = 60

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.shrink < 1, f"shrink must lie between 0 and 1, not {self.shrink}")
        require(0 <= self.armijo < 1, f"armijo must lie in [0, 1), not {self.armijo}")

    def move(self, flow: Flow, y: Tensor, v: Tensor, curve: Curve) -> Move:
        """Shorten h until the loss falls by enough."""
        start, slope = flow.loss(y), flow.slope(y, v)
        h = min(flow.share(y) * self.lr, flow.step_limit(y, v))
        for tries in range(self.max_steps):
            new = finite(curve, h)
            if new is not None and flow.loss(new) <= start + self.armijo * h * slope:
                return Move(new, v, h, True, halvings=tries)
            h *= self.shrink
        return Move(y, v, 0.0, False, halvings=self.max_steps)

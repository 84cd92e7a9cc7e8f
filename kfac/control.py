"""How far to go along a rule's curve: a trust region, a line search, or a constant step."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from geonpg.errors import require

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


def finite(curve: Curve, h: float) -> Tensor | None:
    """Return the curve at h, or None where it has no finite value."""
    try:
        y = curve(h)
    except StepFailure:
        return None
    return y if is_finite(y) else None


@dataclass(frozen=True)
class Controller(ABC):
    """How the step size h is chosen, once the velocity is known.

    lr: the longest step it may choose; 1 is the natural length of a natural-gradient step.
    """

    lr: float = 1.0

    def __post_init__(self) -> None:
        require(math.isfinite(self.lr) and self.lr >= 0, f"lr must be finite and not negative, not {self.lr}")

    @abstractmethod
    def move(self, flow: Flow, y: Tensor, v: Tensor, curve: Curve) -> Move:
        """Choose h, and return where the rule's curve is at that h."""


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

    def move(self, flow: Flow, y: Tensor, v: Tensor, curve: Curve) -> Move:
        """Halve h until the actual KL fits."""
        speed, share = flow.speed_squared(y, v), flow.share(y)
        # a batch may not see a direction that earlier ones would: their metric counts where it is the larger
        fastest = max(speed, flow.remembered_speed_squared(y, v))
        if not math.isfinite(speed) or not math.isfinite(fastest):
            return Move(y, v, 0.0, False)
        radius = math.sqrt(2 * self.max_kl / fastest) if fastest > 0 else math.inf
        h = min(share * self.lr, share * radius, flow.step_limit(y, v))
        for halvings in range(self.max_halvings + 1):
            new = finite(curve, h)
            actual = math.inf if new is None else flow.divergence(y, new)
            if new is not None and actual <= self.slack * self.max_kl:
                return Move(new, v, h, True, 0.5 * h**2 * speed, actual, halvings)
            h *= 0.5
        return Move(y, v, 0.0, False, halvings=self.max_halvings)


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

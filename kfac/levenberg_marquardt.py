"""Levenberg's and Marquardt's control: full steps, and a damping that follows how well the model predicts them."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from geonpg.errors import require

from .control import Controller, Curve, Move, finite
from .damping import Damping
from .flow import Flow


class Schedule(ABC):
    """How the damping follows the gain ratio: the actual over the predicted reduction of the loss."""

    @abstractmethod
    def next(self, damping: Damping, ratio: float, accepted: bool) -> Damping:
        """Return the damping of the next step."""


@dataclass(frozen=True)
class Nielsen(Schedule):
    """Nielsen's rule (1999): a smooth factor of at least `lower`, and rejections that weigh twice as much each time.

    lower: the least factor, after steps that went as predicted or better (0.1 to 0.5).
    least: how small the damping may become (0 to 1e-8).
    most: and how large (1e6 to 1e30).
    """

    lower: float = 1 / 3
    least: float = 1e-16
    most: float = 1e20

    def __post_init__(self) -> None:
        require(0 < self.lower <= 1, f"lower must lie in (0, 1], not {self.lower}")
        require(0 <= self.least < self.most, f"least must lie in [0, most), not {self.least} with most {self.most}")

    def next(self, damping: Damping, ratio: float, accepted: bool) -> Damping:
        """Multiply by max(lower, 1 - (2 ratio - 1)^3), or by the growth of rejections."""
        if not accepted:
            value = min(max(damping.value, self.least) * damping.growth, self.most)
            return replace(damping, value=value, growth=min(2 * damping.growth, self.most))
        bounded = min(ratio, 1.0) if ratio > 0 else 0.0  # other controllers may accept a step that raises the loss
        factor = max(self.lower, 1 - (2 * bounded - 1) ** 3)
        return replace(damping, value=min(max(self.least, factor * damping.value), self.most), growth=2.0)


@dataclass(frozen=True)
class Quarters(Schedule):
    """Martens' rule (2010): raised where the model promised four times too much, lowered where it was nearly right.

    higher: what it is multiplied by below a ratio of 1/4 (1.2 to 4).
    lower: and above one of 3/4 (0.25 to 0.9).
    """

    higher: float = 3 / 2
    lower: float = 2 / 3

    def __post_init__(self) -> None:
        require(self.higher > 1, f"higher must be above 1, not {self.higher}")
        require(0 < self.lower < 1, f"lower must lie between 0 and 1, not {self.lower}")

    def next(self, damping: Damping, ratio: float, accepted: bool) -> Damping:
        """Compare the ratio with a quarter and three quarters; a rejected step raises it in any case."""
        if not (accepted and ratio >= 0.25):  # so that NaN raises it too
            return replace(damping, value=damping.value * self.higher)
        return replace(damping, value=damping.value * self.lower) if ratio > 0.75 else damping


@dataclass(frozen=True)
class LevenbergMarquardt(Controller):
    """A full step, accepted if the loss falls; the damping follows the gain ratio, so that good steps become long ones.

    For losses without noise, such as residuals (`step_residuals`). A rejected step is tried again at once with a
    higher damping, from the same linearisation. If none lowers the loss, the damping stays raised for the next step,
    unless the last one promised nothing, as at a minimum: then it is as before.

    lr: the step (typically 1: the damping decides how long that is).
    least_ratio: of the predicted reduction that an accepted step must bring (0 to 0.1).
    most_bend: how long the second-order part of a step may be, twice its length over that of the first-order part
        (Transtrum & Sethna, 2012; 0.5 to 2, math.inf for no limit). Beyond that the model is not to be trusted. Of
        `mid` it is one near every minimum, where the velocity half a step ahead is half as long: math.inf for that.
    retries: how often to raise the damping before the step is given up (5 to 30).
    schedule: how the damping follows the ratio.
    """

    follows_ratio: ClassVar[bool] = True

    least_ratio: float = 1e-3
    most_bend: float = 0.75
    retries: int = 12
    schedule: Schedule = Nielsen()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.least_ratio < 1, f"least_ratio must lie in [0, 1), not {self.least_ratio}")
        require(self.most_bend > 0, f"most_bend must be positive, not {self.most_bend}")
        whole = isinstance(self.retries, int) and self.retries >= 0
        require(whole, f"retries must be a whole number, not negative, not {self.retries}")
        require(isinstance(self.schedule, Schedule), f"schedule must be Nielsen() or Quarters(), not {self.schedule!r}")

    @property
    def attempts(self) -> int:
        """One, and the retries."""
        return 1 + self.retries

    def move(self, flow: Flow, y: Tensor, v: Tensor, curve: Curve) -> Move:
        """Take the step, if it does not bend too much and lowers the loss by enough."""
        rejected = Move(y, v, 0.0, False)
        h = min(flow.share(y) * self.lr, flow.step_limit(y, v))
        new = finite(curve, h)
        if new is None or self._bends(flow, y, new, h * v):
            return rejected
        speed = flow.speed_squared(y, v)
        ratio = gain_ratio(flow, y, new, h * flow.slope(y, v) + 0.5 * h**2 * speed)
        if not ratio > self.least_ratio:
            return replace(rejected, gain_ratio=ratio)
        return Move(new, v, h, True, 0.5 * h**2 * speed, gain_ratio=ratio)

    def _bends(self, flow: Flow, y: Tensor, new: Tensor, straight: Tensor) -> bool:
        """Whether the second-order part of a step is too long."""
        bent = flow.norm(y, new - y - straight)
        return not 2 * bent <= self.most_bend * flow.norm(y, straight)

    def next_damping(self, damping: Damping, move: Move) -> Damping:
        """Follow the gain ratio."""
        return self.schedule.next(damping, move.gain_ratio, move.accepted)


def gain_ratio(flow: Flow, y: Tensor, new: Tensor, predicted: float) -> float:
    """Divide the actual by the predicted change of the loss; -inf unless a reduction was predicted."""
    return (flow.loss(new) - flow.loss(y)) / predicted if predicted < 0 else -math.inf

"""The instruments of one update."""

import math
from dataclasses import dataclass

from .control import Move
from .network_flow import NetworkFlow


@dataclass(frozen=True)
class Report:
    """What one update measured; nan where the rule or the controller does not measure a number."""

    accepted: bool = False
    h: float = 0.0  # the step size
    halvings: int = 0  # how often the controller shortened it
    predicted_kl: float = math.nan  # by the metric
    actual_kl: float = math.nan
    kappa: float = math.nan  # what calibration multiplied the correction by
    residual_before: float = math.nan  # second-order error of the step without its correction
    residual_after: float = math.nan  # and with it
    angle: float = 0.0  # degrees between the ng step and the step taken, in parameter space
    correction_norm: float = 0.0
    damping: float = math.nan
    gain_ratio: float = math.nan  # actual over predicted reduction of the loss
    points: int = 0  # where gradient and metric were computed: Jacobians, of solver "jacobian"
    share: float = math.nan  # of its full length that the step had earned
    remembered_kl: float = math.nan  # predicted by the metric that earlier batches left behind, with its damping


def report_of(flow: NetworkFlow, move: Move) -> Report:
    """Read the instruments after an accepted move."""
    taken = move.y - flow.base
    lengths = float(taken.norm()) * float(move.v.norm())
    cosine = float(taken @ move.v) / lengths if lengths > 0 else 1.0
    correction = flow.correction
    return Report(
        accepted=True,
        h=move.h,
        halvings=move.halvings,
        predicted_kl=move.predicted_kl,
        actual_kl=move.actual_kl,
        kappa=correction.kappa if correction else math.nan,
        residual_before=correction.residual_before if correction else math.nan,
        residual_after=correction.residual_after if correction else math.nan,
        angle=math.degrees(math.acos(min(max(cosine, -1.0), 1.0))),
        correction_norm=float((taken - move.h * move.v).norm()),
        damping=flow.damping,
        gain_ratio=move.gain_ratio,
        points=flow.points,
        share=flow.share(flow.base),
        remembered_kl=0.5 * move.h**2 * flow.remembered_speed_squared(flow.base, move.v) or math.nan,
    )

"""Conjugate gradients cut short, after Martens (2010): stop when progress slows, keep iterates to choose from."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from geonpg.errors import require


@dataclass(frozen=True)
class Truncation:
    """When to stop, and which iterates to keep.

    It stops once the quadratic model fell by less than `progress` per iteration, relative to its value, over the
    last max(`window`, 0.1 i) iterations. Kept are the iterates whose numbers grow by the factor `spacing`.
    """

    iterations: int = 50
    progress: float = 5e-4
    window: int = 10
    spacing: float = 1.3

    def __post_init__(self) -> None:
        require(self.iterations >= 1, f"iterations must be at least 1, not {self.iterations}")
        require(self.window >= 1, f"window must be at least 1, not {self.window}")
        require(self.progress >= 0, f"progress must not be negative, not {self.progress}")
        require(self.spacing > 1, f"spacing must be greater than 1, not {self.spacing}")


@dataclass(frozen=True)
class Iterates:
    """The iterates kept, in order, the last one always; `iterations` is how many there were."""

    kept: list[Tensor]
    iterations: int


def truncated_cg(
    product: Callable[[Tensor], Tensor],
    b: Tensor,
    precondition: Callable[[Tensor], Tensor],
    start: Tensor | None,
    settings: Truncation,
) -> Iterates:
    """Solve g x = b from `start`, or from zero."""
    x = torch.zeros_like(b) if start is None else start.clone()
    residual = b.clone() if start is None else b - product(start)
    models, kept, next_kept = [-0.5 * float(x @ (b + residual))], list[Tensor](), settings.spacing
    p, previous = torch.zeros_like(b), 1.0
    for i in range(1, settings.iterations + 1):
        z = precondition(residual)
        rho = float(residual @ z)
        p = torch.add(z, p, alpha=rho / previous)
        gp = product(p)
        curvature = float(p @ gp)
        if not (curvature > 0 and rho > 0 and math.isfinite(rho)):  # solved, or rounding: what there is stands
            break
        x.add_(p, alpha=rho / curvature)
        residual.sub_(gp, alpha=rho / curvature)
        previous = rho
        models.append(models[-1] - 0.5 * rho * rho / curvature)
        if i >= next_kept:
            kept.append(x.clone())
            next_kept *= settings.spacing
        if slow(models, settings):
            break
    if not kept or not torch.equal(kept[-1], x):
        kept.append(x)
    return Iterates(kept, len(models) - 1)


def slow(models: Sequence[float], settings: Truncation) -> bool:
    """Has the quadratic model, whose value at each iterate so far is given, stopped falling fast enough?"""
    done, now = len(models) - 1, models[-1]
    window = max(settings.window, done // 10)
    return done > window and now < 0 and (now - models[-1 - window]) / now < window * settings.progress


def back_track(kept: Sequence[Tensor], loss: Callable[[Tensor], float]) -> tuple[Tensor, float]:
    """From the last iterate back for as long as the loss falls; a loss that is not finite counts as the worst."""
    best, lowest = kept[-1], finite_or_worst(loss(kept[-1]))
    for candidate in reversed(kept[:-1]):
        value = finite_or_worst(loss(candidate))
        if value > lowest or (value == lowest and math.isfinite(value)):
            break
        best, lowest = candidate, value
    return best, lowest


def finite_or_worst(value: float) -> float:
    return value if math.isfinite(value) else math.inf

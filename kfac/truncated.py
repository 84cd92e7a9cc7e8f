"""Conjugate gradients cut short, after Martens (2010): stop when progress slows, keep iterates to choose from."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .choice import require


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
    """The iterates kept, in order, the last one always: each [sides, size]. `iterations` is how many there were."""

    kept: list[Tensor]
    iterations: int


def truncated_cg(
    product: Callable[[Tensor], Tensor],
    sides: Sequence[Tensor],
    weights: Sequence[float],
    precondition: Callable[[Tensor], Tensor],
    starts: Sequence[Tensor | None],
    settings: Truncation,
) -> Iterates:
    """Solve g x_k = b_k for one or two right-hand sides b_k by one run on the weighted sum of them.

    The directions serve the sum; each side is projected on them, so that the weighted sum of the solutions is what
    conjugate gradients would find for the sum, and one side alone gets plain conjugate gradients.
    """
    x = torch.stack([torch.zeros_like(b) if start is None else start for b, start in zip(sides, starts, strict=True)])
    residuals = torch.stack([b if s is None else b - product(s) for b, s in zip(sides, starts, strict=True)])
    mixed = mix(weights, residuals)
    model = -0.5 * float(mix(weights, x) @ (mix(weights, sides) + mixed))
    models, kept, next_kept = deque([model]), list[Tensor](), 1.0
    p, previous, done = torch.zeros_like(mixed), 1.0, 0
    for i in range(1, settings.iterations + 1):
        z = precondition(mixed)
        rho = float(mixed @ z)
        p = torch.add(z, p, alpha=rho / previous)
        gp = product(p)
        curvature = float(p @ gp)
        if not (curvature > 0 and rho > 0 and math.isfinite(rho)):  # solved, or rounding: what there is stands
            break
        for k in range(len(sides)):
            along = float(residuals[k] @ p) / curvature
            x[k].add_(p, alpha=along)
            residuals[k].sub_(gp, alpha=along)
        mixed, previous, done = mix(weights, residuals), rho, i
        model -= 0.5 * rho * rho / curvature
        models.append(model)
        if i >= math.ceil(next_kept):
            kept.append(x.clone())
            next_kept *= settings.spacing
        window = max(settings.window, i // 10)
        if i > window and model < 0 and (model - models[-1 - window]) / model < window * settings.progress:
            break
    if not kept or not torch.equal(kept[-1], x):
        kept.append(x)
    return Iterates(kept, done)


def mix(weights: Sequence[float], rows: Sequence[Tensor] | Tensor) -> Tensor:
    """The weighted sum of the rows; a single row of weight one is handed through."""
    if len(weights) == 1 and weights[0] == 1:
        return rows[0]
    total = weights[0] * rows[0]
    for weight, row in zip(weights[1:], rows[1:], strict=True):
        total = torch.add(total, row, alpha=weight)
    return total


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

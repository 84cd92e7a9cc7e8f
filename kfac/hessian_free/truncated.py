"""Conjugate gradients cut short, after Martens (2010): stop when progress slows, keep iterates to choose from."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from geonpg.errors import require

from ..conjugate_gradients import ConjugateGradients, Linear

C = TypeVar("C")


@dataclass(frozen=True)
class Truncation:
    """When conjugate gradients stop, and which iterates they keep to choose from.

    They stop once the quadratic model fell by less than `progress` per iteration, relative to its value, over the
    last max(window, 0.1 i) iterations.

    iterations: the most there may be (typically 50 to 250).
    progress: the relative fall per iteration below which it is enough (1e-4 to 1e-3; 0 for never).
    window: over how many iterations that is measured, at least (5 to 20).
    spacing: the factor by which the numbers of the iterates kept grow (1.2 to 2; inf keeps the last one alone).
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
    product: Linear, b: Tensor, precondition: Linear, start: Tensor | None, settings: Truncation
) -> Iterates:
    """Solve g x = b from `start`, or from zero, until the settings stop it."""
    cg = ConjugateGradients(product, b, precondition, start)
    models, kept, next_kept = [-0.5 * float(cg.x @ (b + cg.residual))], list[Tensor](), settings.spacing
    for i in range(1, settings.iterations + 1):
        fall = cg.advance()
        if fall is None:
            break
        models.append(models[-1] - fall)
        if i >= next_kept:
            kept.append(cg.x.clone())
            next_kept *= settings.spacing
        if slow(models, settings):
            break
    if not kept or not torch.equal(kept[-1], cg.x):
        kept.append(cg.x)
    return Iterates(kept, len(models) - 1)


def slow(models: Sequence[float], settings: Truncation) -> bool:
    """Whether the quadratic model, whose value at each iterate so far is given, has stopped falling fast enough."""
    done, now = len(models) - 1, models[-1]
    window = max(settings.window, done // 10)
    return done > window and now < 0 and (now - models[-1 - window]) / now < window * settings.progress


def back_track(candidates: Iterable[C], loss: Callable[[C], float]) -> C:
    """Go from one candidate to the next for as long as the loss falls; a loss that is not finite counts as the worst.

    The last iterate comes first. What comes after the candidate that is returned and the next one is not looked at.
    """
    remaining = iter(candidates)
    best = next(remaining)
    lowest = finite_or_worst(loss(best))
    for candidate in remaining:
        value = finite_or_worst(loss(candidate))
        if value > lowest or (value == lowest and math.isfinite(value)):
            break
        best, lowest = candidate, value
    return best


def finite_or_worst(value: float) -> float:
    """Replace a value that is not finite by infinity."""
    return value if math.isfinite(value) else math.inf

"""Numbers with 95 % intervals, and the verdicts that follow: the bootstrap for several tasks, Student's t for one.

A group holds one run per row, [n, ...]: the runs of one method on one task. Each group is resampled on its own, because
seeds are random and tasks are not. A statistic maps resampled groups, [count, n_i, ...] each, to [count, ...].
On a single task with five runs the bootstrap's intervals are too narrow: one in eight would miss the truth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import trapezoid

from geonpg.scripts.common.artifacts import aligned

Array = NDArray[np.float64]
Statistic = Callable[[Sequence[Array]], Array]

COUNT = 10_000  # resamples of a number
CURVE_COUNT = 2_000  # resamples of a curve
TAILS = (0.025, 0.975)
UNKNOWN = "not known"  # the interval of a single run


class Needed(NamedTuple):
    """How many independent observations a verdict needs at least, and what they are called."""

    least: int
    what: str


SEEDS = Needed(5, "seeds")


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval: numbers, or arrays along a curve."""

    value: Array
    low: Array
    high: Array

    @property
    def has_ends(self) -> bool:
        """Whether the interval of a number is known; that of a single run is not."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))

    def numbers(self, key: str) -> dict[str, float]:
        """The number under a key, and the ends of its interval, if it has any, under key/low and key/high."""
        ends = {f"{key}/low": float(self.low), f"{key}/high": float(self.high)}
        return {key: float(self.value), **(ends if self.has_ends else {})}


def estimated(estimate: Estimate) -> list[str]:
    """Two cells of a table: the value, and its interval if there is one."""
    value, low, high = aligned(float(estimate.value), float(estimate.low), float(estimate.high))
    return [value, f"{low} to {high}" if estimate.has_ends else UNKNOWN]


def with_interval(estimate: Estimate) -> str:
    """The value followed by its interval in brackets, if there is one."""
    value, interval = estimated(estimate)
    return f"{value} ({interval})" if estimate.has_ends else value


def bootstrap(statistic: Statistic, groups: Sequence[Array], count: int = COUNT) -> Estimate:
    """Percentile interval of a statistic; the same data give the same bits."""
    rng = np.random.default_rng(0)
    drawn = [group[rng.integers(len(group), size=(count, len(group)))] for group in groups]
    low, high = np.quantile(statistic(drawn), TAILS, axis=0)
    return Estimate(statistic([group[None] for group in groups])[0], low, high)


def student(runs: Array) -> Estimate:
    """Student's interval of the mean of one group [n]; infinitely wide for a single run."""
    value = runs.mean()
    reach = stats.t.ppf(TAILS[1], len(runs) - 1) * stats.sem(runs) if len(runs) > 1 else np.inf
    return Estimate(value, value - reach, value + reach)


def reach_of_sum(groups: Sequence[Array]) -> float:
    """Half the interval of a sum or difference of groups' means, each with a variance of its own (Satterthwaite)."""
    if min(map(len, groups)) < 2:
        return np.inf
    squares = np.array([stats.sem(group) ** 2 for group in groups])  # of standard errors
    if squares.sum() == 0:
        return 0.0
    freedom = squares.sum() ** 2 / sum(s**2 / (len(g) - 1) for s, g in zip(squares, groups, strict=True))
    return float(stats.t.ppf(TAILS[1], freedom) * np.sqrt(squares.sum()))


def pooled_student(groups: Sequence[Array]) -> Estimate:
    """Student's interval of the mean of the means of groups [n_i]; infinitely wide if a group has a single run."""
    value, reach = np.mean([group.mean() for group in groups]), reach_of_sum(groups) / len(groups)
    return Estimate(value, value - reach, value + reach)


def welch(ours: Array, theirs: Array) -> Estimate:
    """Welch's interval of the difference of the means of two groups [n], [m]; infinitely wide for a single run."""
    value, reach = ours.mean() - theirs.mean(), reach_of_sum([ours, theirs])
    return Estimate(value, value - reach, value + reach)


def mean(groups: Sequence[Array]) -> Array:
    """Mean of all runs together."""
    return np.concatenate(groups, axis=1).mean(axis=1)


def interquartile_mean(groups: Sequence[Array]) -> Array:
    """Mean of the middle half of all runs together."""
    scores = np.sort(np.concatenate(groups, axis=1), axis=1)
    cut = scores.shape[1] // 4
    return scores[:, cut : scores.shape[1] - cut].mean(axis=1)


def improvement(groups: Sequence[Array]) -> Array:
    """Probability that a run of one method beats a run of another on the same task, a tie being half; mean over tasks.

    The first half of the groups are the one method's tasks, the second half the other's, in the same order.
    """
    tasks = len(groups) // 2
    pairs = zip(groups[:tasks], groups[tasks:], strict=True)
    signs = (np.sign(ours[:, :, None] - theirs[:, None]) for ours, theirs in pairs)
    return np.stack([(1 + sign.mean(axis=(1, 2))) / 2 for sign in signs]).mean(axis=0)


def verdict(estimate: Estimate, count: int, needed: Needed = SEEDS, neutral: float = 0.0, good: int = 1) -> str:
    """Say whether an interval leaves out the neutral value, and on which side.

    count: observations in the smallest group; no verdict with fewer than needed.
    good: the sign of a deviation that is good news; 0 if neither sign is, which makes it "higher" or "lower".
    """
    if count < needed.least:
        return f"too few {needed.what}"
    if not estimate.has_ends:
        return UNKNOWN
    if estimate.low <= neutral <= estimate.high:
        return "not significant"
    sign = 1 if estimate.low > neutral else -1
    if good == 0:
        return "higher" if sign > 0 else "lower"
    return "better" if sign == good else "worse"


def steps_to(level: float, steps: Array, returns: Array) -> float:
    """First step at which a curve is at or above the level; infinity if it never is."""
    reached = np.flatnonzero(returns >= level)
    return float(steps[reached[0]]) if len(reached) else float("inf")


def mean_height(steps: Array, returns: Array, end: float) -> float:
    """Area under a curve from 0 to `end`, divided by `end`; before its first point, the first value counts."""
    inner = steps[(steps > 0) & (steps < end)]
    grid = np.concatenate([[0.0], inner, [end]])
    return float(trapezoid(np.interp(grid, steps, returns), grid) / end)

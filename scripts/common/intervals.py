"""Numbers with intervals: the stratified bootstrap for several tasks together, Student's t for one.

A group holds one run per row, [n, ...]: the runs of one method on one task. Groups are resampled each on its own, since
runs are what chance drew and tasks are not. A statistic maps resampled groups, [count, n_i, ...] each, to [count, ...].
On a single task with five runs the bootstrap's intervals are too narrow: an eighth of them would miss.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import trapezoid

Array = NDArray[np.float64]
Statistic = Callable[[Sequence[Array]], Array]

COUNT = 10_000  # resamples
TAILS = (0.025, 0.975)
FEWEST_SEEDS = 5  # below this, no verdict


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval: numbers, or arrays along a curve."""

    value: Array
    low: Array
    high: Array


def bootstrap(statistic: Statistic, groups: Sequence[Array], count: int = COUNT) -> Estimate:
    """Percentile interval; the same data give the same bits."""
    rng = np.random.default_rng(0)
    drawn = [group[rng.integers(len(group), size=(count, len(group)))] for group in groups]
    low, high = np.quantile(statistic(drawn), TAILS, axis=0)
    return Estimate(statistic([group[None] for group in groups])[0], low, high)


def student(runs: Array) -> Estimate:
    """Student's interval of the mean of one group [n]; a single run says nothing about others."""
    value = runs.mean()
    reach = stats.t.ppf(TAILS[1], len(runs) - 1) * stats.sem(runs) if len(runs) > 1 else np.inf
    return Estimate(value, value - reach, value + reach)


def welch(ours: Array, theirs: Array) -> Estimate:
    """Welch's interval of the difference of the means of two groups [n], [m]."""
    value = ours.mean() - theirs.mean()
    if min(len(ours), len(theirs)) < 2:
        return Estimate(value, value - np.inf, value + np.inf)
    if ours.var() == theirs.var() == 0:
        return Estimate(value, value, value)
    low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(TAILS[1] - TAILS[0])
    return Estimate(value, low, high)


def mean(groups: Sequence[Array]) -> Array:
    """Of all runs together."""
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


def verdict(estimate: Estimate, neutral: float, seeds: int) -> str:
    """In words, of a comparison whose smallest group has so many seeds."""
    if seeds < FEWEST_SEEDS:
        return "too few seeds"
    if estimate.low > neutral:
        return "better"
    return "worse" if estimate.high < neutral else "not significant"


def steps_to(level: float, steps: Array, returns: Array) -> float:
    """The first step at which a curve is at the level; infinite if it never is."""
    reached = np.flatnonzero(returns >= level)
    return float(steps[reached[0]]) if len(reached) else float("inf")


def mean_height(steps: Array, returns: Array, end: float) -> float:
    """Area under a curve from 0 to `end`, divided by `end`. Before the first point, its value counts."""
    inner = steps[(steps > 0) & (steps < end)]
    grid = np.concatenate([[0.0], inner, [end]])
    return float(trapezoid(np.interp(grid, steps, returns), grid) / end)

"""Counts and steps in words, and the sentences that the page repeats."""

from collections.abc import Iterable, Sequence

import numpy as np

from geonpg.scripts.common.intervals import COUNT, CURVE_COUNT, SEEDS
from geonpg.scripts.reports.recorded_run import RecordedRun

COMPUTED = (
    "Over several tasks, and along curves, intervals are 95 % percentile intervals of the stratified bootstrap: runs "
    f"are drawn anew within each task and method, {COUNT:,} times ({CURVE_COUNT:,} for curves). On a single task they "
    "are Student's for means and Welch's for differences, because the bootstrap's are too narrow for five runs. With "
    f"fewer than {SEEDS.least} seeds there is no verdict.",
    "Over several tasks, there is a verdict if the interval of the probability of improvement excludes 0.5; where "
    "nothing differs, this happens in 5 % of cases with six tasks and five seeds, and in 7 % with two tasks. On a "
    "single task, there is a verdict if the interval of the difference of means excludes 0. Nothing is corrected for "
    "the number of comparisons.",
    "Unfinished runs are in no table. A run counts with its last evaluation, not with its best.",
)
BRANCHES = (
    "Every rule makes the same number of updates from the same checkpoints with the same random numbers, and is "
    "compared with ng there. This is the primary test of whether geometry helps; its analysis was fixed in advance "
    "(docs/branch.md)."
)

LONG_STEPS = (
    "One update from the same checkpoints and the same steps by every variant: what its surrogate gains on other steps "
    "of the same policy, in deviations of the advantage (docs/large.md)."
)

RACES = (
    "Everyone trains alone on the same cores for the same minutes. The clock stands still while policies are evaluated "
    "and does not count imports and compilation; bands are the range of seeds. What is measured, and what is unfair in "
    "it: docs/race.md."
)


def steps_text(steps: float) -> str:
    """A number of steps, such as '0.25 M', '30 k' or 'never'."""
    if np.isinf(steps):
        return "never"
    return f"{steps / 1e6:.2f} M" if steps >= 1e5 else f"{steps / 1e3:.0f} k"


def steps_range(steps: Iterable[float]) -> str:
    """The least and the largest number of steps, such as '0.30 M to 1.00 M'; one if they are equal."""
    ends = sorted(set(steps))
    return " to ".join(dict.fromkeys(map(steps_text, (ends[0], ends[-1]))))


def span(values: Iterable[float]) -> str:
    """The least and the largest value, such as '3 to 5'; one if they are equal."""
    ends = sorted(set(values))
    return " to ".join(f"{end:g}" for end in dict.fromkeys([*ends[:1], *ends[-1:]]))


def counted(thing: str, *counts: int) -> str:
    """How many there are of a thing, such as '1 task', '2 tasks' or '3 to 5 tasks'."""
    return f"{span(counts)} {thing}{'' if set(counts) == {1} else 's'}"


def episodes_text(runs: Sequence[RecordedRun]) -> str:
    """Sentence on how many episodes evaluations have: the last one of a run that has ended has more."""
    last = [run.episodes[-1] for run in runs if run.has_ended]
    others = [count for run in runs for count in run.episodes[: -1 if run.has_ended else None]]
    if not last:
        return f"An evaluation has {counted('deterministic episode', *others)}." if others else ""
    rest = f", the others {span(others)}" if others else ""
    return f"A run's last evaluation has {counted('deterministic episode', *last)}{rest}."

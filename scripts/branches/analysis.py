"""What the branches say: paired differences to `ng` at the same checkpoint, with intervals and verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geonpg.scripts.branches.rows import BRANCH_RULES, Branch, read_rows
from geonpg.scripts.common.artifacts import Cell, Table, aligned, number
from geonpg.scripts.common.intervals import Array, Estimate, Needed, bootstrap, verdict
from geonpg.scripts.common.published import PAPER_LEVEL, RANDOM_LEVEL, is_anchored, task_of

REFERENCE = "ng"  # the method that others are compared with
RIVALS = tuple(rule for rule in BRANCH_RULES if rule != REFERENCE)
ALL = "all tasks"
PRIMARY = "score"
CHECKPOINTS = Needed(50, "checkpoints")  # per task, as the design has them


@dataclass(frozen=True)
class Measure:
    """A column of the rows. `good`: the sign of a difference that is good news, 0 if neither sign is."""

    title: str
    good: int


MEASURES: Mapping[str, Measure] = {
    "score": Measure("return after the branch", 1),
    "surrogate": Measure("held-out surrogate of the whole branch", 1),
    "first_surrogate": Measure("held-out surrogate of its first update", 1),
    "kl_miss": Measure("distance of actual / predicted KL from 1", -1),
    "entropy": Measure("change of the policy's entropy", 0),
}

BranchStudy = Mapping[str, Mapping[str, Sequence[Branch]]]  # task, rule, checkpoints in the same order for every rule


def read_branches(folder: Path) -> BranchStudy:
    """The checkpoints at which every rule has been tried; no task without one."""
    study: dict[str, dict[str, list[Branch]]] = {}
    for path in sorted(folder.glob("*/*.csv")):
        rows = read_rows(path)
        whole = len(rows) // len(BRANCH_RULES) * len(BRANCH_RULES)  # the last checkpoint may be under way
        for row in rows[:whole]:
            study.setdefault(path.parent.name, {rule: [] for rule in BRANCH_RULES})[row.rule].append(row)
    return study


def places(study: BranchStudy) -> list[str]:
    """All tasks together, if there are several, and each task."""
    return [*([ALL] if len(study) > 1 else []), *study]


def tasks_at(study: BranchStudy, place: str) -> list[str]:
    """The tasks that a place stands for."""
    return list(study) if place == ALL else [place]


def values(study: BranchStudy, env_id: str, rule: str, measure: str) -> Array:
    """One measure at every checkpoint of a task: [checkpoints]."""
    return np.array([getattr(row, measure) for row in study[env_id][rule]])


def unit(env_id: str, measure: str) -> float:
    """What differences are divided by before tasks are compared: for returns, the span of normalised scores."""
    if measure != PRIMARY or not is_anchored(env_id):
        return 1.0
    return PAPER_LEVEL[task_of(env_id)] - RANDOM_LEVEL[task_of(env_id)]


def mean_of_means(groups: Sequence[Array]) -> Array:
    """Mean over tasks of the mean over checkpoints."""
    return np.stack([group.mean(axis=1) for group in groups]).mean(axis=0)


def difference(study: BranchStudy, rule: str, measure: str, place: str) -> Estimate:
    """Mean paired difference to `ng`; over all tasks, the mean of the tasks' means in comparable units."""
    tasks = tasks_at(study, place)
    found = [values(study, env_id, rule, measure) - values(study, env_id, REFERENCE, measure) for env_id in tasks]
    if place == ALL:
        found = [each / unit(env_id, measure) for each, env_id in zip(found, tasks, strict=True)]
    return bootstrap(mean_of_means, found)


def judged(study: BranchStudy, rule: str, measure: str, place: str) -> tuple[Estimate, str]:
    """The paired difference to `ng`, and its verdict."""
    estimate = difference(study, rule, measure, place)
    fewest = min(len(study[env_id][rule]) for env_id in tasks_at(study, place))
    return estimate, verdict(estimate, fewest, CHECKPOINTS, good=MEASURES[measure].good)


def branch_tables(study: BranchStudy) -> list[Table]:
    """Means over checkpoints, then the differences of every measure."""
    return [means_table(study), *(difference_table(study, name) for name in MEASURES)]


def means_table(study: BranchStudy) -> Table:
    """Every rule on every task, averaged over checkpoints."""
    checkpoints = ", ".join(f"{env_id} {len(rules[REFERENCE])}" for env_id, rules in study.items())
    columns = ("task", "rule", "return", "surrogate", "first surrogate", "actual / predicted KL", "entropy")
    names = ("score", "surrogate", "first_surrogate", "kl_ratio", "entropy")
    rows: list[list[Cell]] = [
        [env_id, rule, *(number(values(study, env_id, rule, name).mean()) for name in names)]
        for env_id in study
        for rule in BRANCH_RULES
    ]
    return Table("means", f"Means over checkpoints ({checkpoints})", columns, rows)


def difference_table(study: BranchStudy, name: str) -> Table:
    """Paired differences of one measure with intervals and verdicts."""
    rows: list[list[Cell]] = []
    for place in places(study):
        for rule in RIVALS:
            estimate, word = judged(study, rule, name, place)
            value, low, high = aligned(float(estimate.value), float(estimate.low), float(estimate.high))
            rows.append([place, rule, word, value, f"{low} to {high}"])
    title, note = f"Difference to {REFERENCE}: {MEASURES[name].title}", ""
    if name == PRIMARY:
        title += " (primary: all tasks)"
        note = "All tasks: differences of normalised returns (0 is a random policy, 1 the paper's ACKTR)."
    return Table(name, title, ("task", "rule", "verdict", "difference", "95 % interval"), rows, note)


def branch_numbers(study: BranchStudy) -> dict[str, float]:
    """Every estimate as branch/<task or all-tasks>/<rule>/<measure>, with /low and /high."""
    numbers: dict[str, float] = {}
    for place in places(study):
        for rule in RIVALS:
            for name in MEASURES:
                found = difference(study, rule, name, place)
                numbers |= found.numbers(f"branch/{place.replace(' ', '-')}/{rule}/{name}")
    return numbers

"""Which kinds of a study are held against which, and what several tasks say together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geonpg.scripts.common.intervals import Estimate, bootstrap, improvement, interquartile_mean, verdict, welch
from geonpg.scripts.common.published import is_anchored, normalised
from geonpg.scripts.reports.run_files import Kind
from geonpg.scripts.reports.study import Group, Study

Array = NDArray[np.float64]

BASELINE = "ng"
MAIN_PRESET = "default"  # the one that is held against other algorithms


@dataclass(frozen=True)
class Pair:
    """Two kinds on one task, after the steps that both have."""

    ours: Group
    theirs: Group

    @property
    def seeds(self) -> int:
        """Of the smaller group."""
        return min(self.ours.seeds, self.theirs.seeds)

    @property
    def finals(self) -> tuple[Array, Array]:
        steps = min(self.ours.budget, self.theirs.budget)
        return self.ours.finals_at(steps), self.theirs.finals_at(steps)

    def difference(self) -> Estimate:
        """Of the means of evaluations."""
        return welch(*self.finals)

    def verdict(self) -> str:
        return verdict(self.difference(), 0.0, self.seeds)


@dataclass(frozen=True)
class Comparison:
    """One kind over another on the tasks that both have, at least one."""

    kind: Kind
    other: Kind
    pairs: Mapping[str, Pair]  # by task

    def __str__(self) -> str:
        return f"{self.kind} over {self.other}"

    @property
    def seeds(self) -> int:
        return min(pair.seeds for pair in self.pairs.values())

    def improvement(self) -> Estimate:
        """Probability that a run of the kind ends above a run of the other."""
        scores = [pair.finals for pair in self.pairs.values()]
        return bootstrap(improvement, [ours for ours, _ in scores] + [theirs for _, theirs in scores])

    def verdict(self) -> str:
        """By that probability; on a single task, where its interval is too narrow, by the difference of means."""
        if len(self.pairs) > 1:
            return verdict(self.improvement(), 0.5, self.seeds)
        (pair,) = self.pairs.values()
        return pair.verdict()


def compared(study: Study, kinds: Sequence[tuple[Kind, Kind]]) -> list[Comparison]:
    """Those that have a task in common."""
    found = []
    for kind, other in kinds:
        ours, theirs = study.of_kind(kind), study.of_kind(other)
        if pairs := {env_id: Pair(ours[env_id], theirs[env_id]) for env_id in ours if env_id in theirs}:
            found.append(Comparison(kind, other, pairs))
    return found


def over_baseline(study: Study) -> list[Comparison]:
    """Every method over `ng` of the same preset."""
    return compared(study, [(kind, Kind(kind.preset, BASELINE)) for kind in study.kinds if kind.method != BASELINE])


def over_others(study: Study) -> list[Comparison]:
    """Every method of the main preset over every other algorithm."""
    ours = [kind for kind in study.kinds if kind.preset == MAIN_PRESET]
    return compared(study, [(kind, other) for kind in ours for other in study.other_kinds])


def scored(study: Study, kind: Kind) -> list[Group]:
    """The groups of a kind that have a normalised score, on tasks with the largest number of steps."""
    groups = [group for env_id, group in study.of_kind(kind).items() if is_anchored(env_id)]
    return [group for group in groups if group.budget == max(g.budget for g in groups)]


def iqm(groups: Sequence[Group], scores: Sequence[Array], count: int) -> Estimate:
    """Interquartile mean of normalised scores, [seeds, ...] per group."""
    together = [normalised(group.name.env_id, s) for group, s in zip(groups, scores, strict=True)]
    return bootstrap(interquartile_mean, together, count)

"""Which contenders of a study are compared, and what several tasks say together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from geonpg.scripts.branches.analysis import REFERENCE
from geonpg.scripts.common.intervals import Array, Estimate, bootstrap, improvement, interquartile_mean, verdict, welch
from geonpg.scripts.common.published import is_anchored, normalised
from geonpg.scripts.reports.recorded_run import Contender
from geonpg.scripts.reports.study import SeedGroup, Study

MAIN_PRESET = "default"  # the one that is compared with other algorithms


@dataclass(frozen=True)
class Pair:
    """Two contenders on one task, after the steps that both have, or after so many updates."""

    ours: SeedGroup
    theirs: SeedGroup
    updates: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether both have made the updates."""
        return self.updates is None or (self.ours.has_made(self.updates) and self.theirs.has_made(self.updates))

    @property
    def seeds(self) -> int:
        """Runs of the smaller group."""
        return min(self.ours.seeds, self.theirs.seeds)

    @property
    def finals(self) -> tuple[Array, Array]:
        """Last evaluations of both sides, or those after the updates."""
        if self.updates is not None:
            return self.ours.finals_after(self.updates), self.theirs.finals_after(self.updates)
        steps = min(self.ours.budget, self.theirs.budget)
        return self.ours.finals_at(steps), self.theirs.finals_at(steps)

    def difference(self) -> Estimate:
        """Difference of the means of last evaluations."""
        return welch(*self.finals)

    def verdict(self) -> str:
        """Whether that difference is significant."""
        return verdict(self.difference(), self.seeds)


@dataclass(frozen=True)
class Comparison:
    """One contender against another on the tasks that both have, at least one."""

    contender: Contender
    other: Contender
    pairs: Mapping[str, Pair]  # by task

    def __str__(self) -> str:
        return f"{self.contender} over {self.other}"

    @property
    def seeds(self) -> int:
        """Runs of the smallest group."""
        return min(pair.seeds for pair in self.pairs.values())

    def improvement(self) -> Estimate:
        """Probability that a run of the contender ends above a run of the other."""
        scores = [pair.finals for pair in self.pairs.values()]
        return bootstrap(improvement, [ours for ours, _ in scores] + [theirs for _, theirs in scores])

    def verdict(self) -> str:
        """Judge that probability; on a single task, where its interval is too narrow, the difference of means."""
        if len(self.pairs) > 1:
            return verdict(self.improvement(), self.seeds, neutral=0.5)
        (pair,) = self.pairs.values()
        return pair.verdict()


def compared(
    study: Study, contenders: Sequence[tuple[Contender, Contender]], updates: int | None = None
) -> list[Comparison]:
    """The comparisons of those that have a task in common, at their ends or after so many updates."""
    found = []
    for contender, other in contenders:
        ours, theirs = study.groups_of(contender), study.groups_of(other)
        shared = [Pair(ours[env_id], theirs[env_id], updates) for env_id in ours if env_id in theirs]
        if pairs := {pair.ours.name.env_id: pair for pair in shared if pair.is_due}:
            found.append(Comparison(contender, other, pairs))
    return found


def over_reference(study: Study, updates: int | None = None) -> list[Comparison]:
    """Every method against `ng` of the same preset, at their ends or after so many updates."""
    rivals = [contender for contender in study.contenders if contender.method != REFERENCE]
    return compared(study, [(rival, Contender(rival.preset, REFERENCE)) for rival in rivals], updates)


def over_others(study: Study) -> list[Comparison]:
    """Every method of the main preset against every other algorithm."""
    ours = [contender for contender in study.contenders if contender.preset == MAIN_PRESET]
    return compared(study, [(contender, other) for contender in ours for other in study.other_algorithms])


def scored(study: Study, contender: Contender) -> list[SeedGroup]:
    """The groups of a contender that have a normalised score, on tasks with the largest number of steps."""
    groups = [group for env_id, group in study.groups_of(contender).items() if is_anchored(env_id)]
    return [group for group in groups if group.budget == max(g.budget for g in groups)]


def iqm(groups: Sequence[SeedGroup], scores: Sequence[Array], count: int) -> Estimate:
    """Interquartile mean of normalised scores, [seeds, ...] per group."""
    together = [normalised(group.name.env_id, s) for group, s in zip(groups, scores, strict=True)]
    return bootstrap(interquartile_mean, together, count)

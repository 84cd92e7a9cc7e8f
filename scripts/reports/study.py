"""A study: the runs of several contenders on several tasks, grouped by seed, with the numbers that are compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geonpg.scripts.common.intervals import Array, mean_height, steps_to
from geonpg.scripts.reports.recorded_run import Contender, GroupName, RecordedRun

LONG = "long"  # the label of runs of a preset itself that are longer than the study's


@dataclass(frozen=True)
class SeedGroup:
    """The runs of one contender on one task, which differ by their seed only; at least one, and all have ended."""

    name: GroupName
    runs: Sequence[RecordedRun]

    @property
    def seeds(self) -> int:
        """How many runs there are."""
        return len(self.runs)

    @property
    def budget(self) -> int:
        """Steps that each run was begun with."""
        return self.runs[0].budget

    @property
    def ablation_of(self) -> Contender | None:
        """The contender that these runs are an ablation of, if they are one."""
        return self.runs[0].ablation_of

    @property
    def is_long(self) -> bool:
        """Whether these runs are labelled as longer runs of the preset itself."""
        return self.ablation_of is not None and self.name.contender.preset == LONG

    @property
    def episodes(self) -> int:
        """Episodes of the last evaluation."""
        return min(run.episodes[-1] for run in self.runs)

    @cached_property
    def areas(self) -> Array:
        """Mean training return from the first step to the last: [seeds]."""
        return np.array([mean_height(run.training.x, run.training.y, run.budget) for run in self.runs])

    @cached_property
    def minutes(self) -> Array:
        """Wall-clock of each run: [seeds]."""
        return np.array([run.seconds / 60 for run in self.runs])

    @property
    def finals(self) -> Array:
        """Mean return of the last evaluation: [seeds]."""
        return np.array([run.evaluation.y[-1] for run in self.runs])

    @property
    def bests(self) -> Array:
        """Mean return of the best evaluation: [seeds]."""
        return np.array([run.evaluation.y.max() for run in self.runs])

    def finals_at(self, steps: int) -> Array:
        """Mean return of the first evaluation after so many steps, or of the last one: [seeds]."""
        return np.array([run.evaluation.first_from(steps) for run in self.runs]) if steps < self.budget else self.finals

    @property
    def batch(self) -> int:
        """Steps of one update; 0 for runs that are not ours."""
        settings = self.runs[0].settings
        return int(settings.get("n_envs", 0)) * int(settings.get("n_steps", 0))

    def has_made(self, updates: int) -> bool:
        """Whether each run has made so many updates."""
        return 0 < updates * self.batch <= self.budget

    def finals_after(self, updates: int) -> Array:
        """Mean return of the first evaluation after so many updates, which each run has made: [seeds]."""
        return self.finals_at(updates * self.batch)

    @property
    def training_finals(self) -> Array:
        """Training return at the end: [seeds]."""
        return np.array([run.training.y[-1] for run in self.runs])

    def steps_to(self, level: float) -> Array:
        """Steps until the training return first is at a level; infinity if it never is: [seeds]."""
        return np.array([steps_to(level, run.training.x, run.training.y) for run in self.runs])


@dataclass(frozen=True)
class Study:
    """Everything that a report is made from."""

    groups: Mapping[GroupName, SeedGroup]  # of runs that have ended
    left_out: Sequence[str]  # one sentence each
    unfinished: Sequence[RecordedRun] = ()  # their curves are shown, nothing is concluded from them

    @cached_property
    def main(self) -> dict[GroupName, SeedGroup]:
        """The groups that are no ablations."""
        return {name: group for name, group in self.groups.items() if group.ablation_of is None}

    @cached_property
    def shown(self) -> list[RecordedRun]:
        """Every run that has a curve to show: without ablations, ended or not."""
        return [*(run for group in self.main.values() for run in group.runs), *self.unfinished]

    @property
    def env_ids(self) -> list[str]:
        """Every task."""
        return sorted({run.name.env_id for run in self.shown})

    @property
    def contenders(self) -> list[Contender]:
        """Everything that is compared, ours first."""
        ours = {run.name.contender: run.is_ours for run in self.shown}
        return sorted(ours, key=lambda contender: (not ours[contender], contender))

    @property
    def our_presets(self) -> list[str]:
        """Presets that methods of ours were run with."""
        return sorted({run.name.contender.preset for run in self.shown if run.is_ours})

    @property
    def other_algorithms(self) -> list[Contender]:
        """Contenders that are not ours."""
        return [contender for contender in self.contenders if contender.preset not in self.our_presets]

    def groups_of(self, contender: Contender) -> dict[str, SeedGroup]:
        """The groups of a contender, by task."""
        return {name.env_id: group for name, group in self.main.items() if name.contender == contender}

    def groups_on(self, env_id: str, contenders: Sequence[Contender]) -> list[SeedGroup]:
        """The groups of these contenders on a task."""
        names = [GroupName(env_id, contender) for contender in contenders]
        return [self.main[name] for name in names if name in self.main]


NO_RUNS = Study({}, ())

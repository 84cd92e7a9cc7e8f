"""A folder of runs, read into arrays: DIR/…/<task>/<preset or algorithm>/<method or settings>/<seed>/, as `geonpg
compare` leaves them, or DIR/<any name>/, as `geonpg train` does; DIR may also be such a run itself.

A run that has not ended, or whose files do not say what they should, is named and left out; of one that has not ended
the curves are kept. A run of `compare` whose folders are not called after its preset and method is an ablation of
these. Runs of `train` that differ in other settings than their names tell are told apart by these.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from geonpg.configs import shown
from geonpg.errors import Refused
from geonpg.scripts.common.intervals import mean_height, steps_to
from geonpg.scripts.reports.run_files import VARIANT, Incomplete, Kind, Name, Run, last_step, read_run

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """The runs of one kind on one task, which differ by their seed only."""

    name: Name
    runs: Sequence[Run]

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def budget(self) -> int:
        return self.runs[0].budget

    @property
    def is_ours(self) -> bool:
        return self.runs[0].is_ours

    @property
    def ablation_of(self) -> Kind | None:
        return self.runs[0].ablation_of

    @property
    def episodes(self) -> int:
        """How many the last evaluation has."""
        return min(run.episodes[-1] for run in self.runs)

    @cached_property
    def areas(self) -> Array:
        """Mean training return from the first step to the last: [seeds]."""
        return np.array([mean_height(run.training.x, run.training.y, run.budget) for run in self.runs])

    @cached_property
    def minutes(self) -> Array:
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
        """As if the runs had ended there: the last evaluation, or the first one after so many steps: [seeds]."""
        return np.array([run.evaluation.first_from(steps) for run in self.runs]) if steps < self.budget else self.finals

    @property
    def training_finals(self) -> Array:
        return np.array([run.training.y[-1] for run in self.runs])

    def steps_to(self, level: float) -> Array:
        return np.array([steps_to(level, run.training.x, run.training.y) for run in self.runs])


@dataclass(frozen=True)
class Study:
    groups: Mapping[Name, Group]  # of runs that have ended
    left_out: Sequence[str]  # one sentence each
    unfinished: Sequence[Run] = ()  # their curves are shown, nothing is concluded from them

    @cached_property
    def main(self) -> dict[Name, Group]:
        """Without ablations."""
        return {name: group for name, group in self.groups.items() if group.ablation_of is None}

    @cached_property
    def shown(self) -> list[Run]:
        """Every run that has a curve to show: without ablations, ended or not."""
        return [*(run for group in self.main.values() for run in group.runs), *self.unfinished]

    @property
    def env_ids(self) -> list[str]:
        return sorted({run.name.env_id for run in self.shown})

    @property
    def kinds(self) -> list[Kind]:
        """Ours first."""
        ours = {run.name.kind: run.is_ours for run in self.shown}
        return sorted(ours, key=lambda kind: (not ours[kind], kind))

    @property
    def our_presets(self) -> list[str]:
        return sorted({run.name.kind.preset for run in self.shown if run.is_ours})

    @property
    def other_kinds(self) -> list[Kind]:
        """Other algorithms."""
        return [kind for kind in self.kinds if kind.preset not in self.our_presets]

    def of_kind(self, kind: Kind) -> dict[str, Group]:
        """By task."""
        return {name.env_id: group for name, group in self.main.items() if name.kind == kind}


def read_study(folder: Path) -> Study:
    read: dict[str, Run] = {}
    left_out: list[str] = []
    for path, is_placed in run_folders(folder):
        where = path.relative_to(folder).as_posix() if path != folder else path.name
        try:
            read[where] = read_run(path, is_placed)
        except Incomplete as reason:
            left_out.append(f"{where} is incomplete: {reason}")
        except (OSError, Refused) as reason:
            left_out.append(f"{where} is damaged: {reason}")
    runs: dict[Name, dict[int, Run]] = {}
    ended_first = sorted(told_apart(read).items(), key=lambda item: not item[1].has_ended)
    for where, run in ended_first:
        together = runs.setdefault(run.name, {})
        if run.seed in together:
            left_out.append(f"{where} is a second run of {run.name}, seed {run.seed}, which counts once")
            continue
        together[run.seed] = run
        if not run.has_ended:
            left_out.append(f"{where} is incomplete: evaluated up to step {last_step(run.evaluation)} of {run.budget}")
    every = [run for _, together in sorted(runs.items()) for run in together.values()]
    unfinished = [run for run in every if not run.has_ended and run.ablation_of is None]
    return Study(grouped([run for run in every if run.has_ended], left_out), sorted(left_out), unfinished)


def run_folders(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Where runs are, and whether their place says what they are."""
    for path in sorted(path for path in folder.glob("**/*/*/*/*") if path.is_dir() and path.name.isdigit()):
        yield path, True
    for path in sorted([folder, *folder.glob("[!.]*")]):
        if (path / "run.json").is_file():
            yield path, False


def told_apart(runs: Mapping[str, Run]) -> dict[str, Run]:
    """The same runs; of those that are named by their files alone, the preset's name tells what was changed in it."""
    return {
        where: run if run.is_placed else replace(run, name=distinct(run, list(runs.values())))
        for where, run in runs.items()
    }


def distinct(run: Run, runs: Sequence[Run]) -> Name:
    """Its name, with settings that are not the preset's where runs of its task and preset differ in them."""
    env_id, (preset, method) = run.name
    alike = [other for other in runs if (other.name.env_id, other.name.kind.preset) == (env_id, preset)]
    usual = run.usual if all(other.usual == run.usual for other in alike) else {}
    changed = {
        key: value
        for key, value in run.settings.items()
        if any(other.settings.get(key, value) != value for other in alike) and value != usual.get(key)
    }
    label = VARIANT.join([preset, *(f"{key}={shown(value)}" for key, value in changed.items())])
    return Name(env_id, Kind(label, method))


def grouped(runs: Sequence[Run], left_out: list[str]) -> dict[Name, Group]:
    """By name, those of the largest budget, by seed."""
    groups: dict[Name, Group] = {}
    for name in dict.fromkeys(run.name for run in runs):
        members = sorted((run for run in runs if run.name == name), key=lambda run: run.seed)
        budget = max(run.budget for run in members)
        shorter = [run for run in members if run.budget < budget]
        left_out += [f"{name}/{run.seed} is shorter: {run.budget} of {budget} steps" for run in shorter]
        groups[name] = Group(name, [run for run in members if run.budget == budget])
    return groups

"""A folder of runs, read into arrays: DIR/…/<task>/<preset or algorithm>/<method or settings>/<seed>/.

Of a run it reads config.toml (`steps`; `method` if it is one of ours), run.json (`env`, `seed`, `preset`), curve.csv,
evaluations.csv and times.csv. A run that has not ended, or whose files do not say what they should, is named and left
out. A run of ours whose folders are not called after its preset and method is an ablation of these.
"""

import csv
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geonpg.kfac.choice import require
from geonpg.scripts.intervals import mean_height, steps_to

Array = NDArray[np.float64]


class Kind(NamedTuple):
    """What was run: a preset and a method of ours, or an algorithm and its settings."""

    preset: str
    method: str

    def __str__(self) -> str:
        return f"{self.preset}/{self.method}"


class Name(NamedTuple):
    env_id: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.env_id}/{self.kind}"


@dataclass(frozen=True)
class Curve:
    """Returns [n] over steps or seconds [n], which never fall; at least one, all finite."""

    x: Array
    y: Array

    def at(self, x: Array) -> Array:
        """Interpolated; nan before the first point, the last value after the last."""
        return np.interp(x, self.x, self.y, left=np.nan)

    def first_from(self, x: float) -> float:
        """The first value at `x` or later, the last if there is none."""
        return float(self.y[min(int(np.searchsorted(self.x, x)), len(self.y) - 1)])


@dataclass(frozen=True)
class Run:
    name: Name
    seed: int
    budget: int
    is_ours: bool
    ablation_of: Kind | None
    training: Curve  # return of training episodes over steps
    evaluation: Curve  # mean of deterministic episodes over steps
    clock: Curve  # return of training episodes over seconds
    seconds: float
    episodes: int  # of the last evaluation


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
        return min(run.episodes for run in self.runs)

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
    groups: Mapping[Name, Group]
    left_out: Sequence[str]  # one sentence each

    @cached_property
    def main(self) -> dict[Name, Group]:
        """Without ablations."""
        return {name: group for name, group in self.groups.items() if group.ablation_of is None}

    @property
    def env_ids(self) -> list[str]:
        return sorted({name.env_id for name in self.main})

    @property
    def kinds(self) -> list[Kind]:
        """Ours first."""
        ours = {name.kind: group.is_ours for name, group in self.main.items()}
        return sorted(ours, key=lambda kind: (not ours[kind], kind))

    @property
    def our_presets(self) -> list[str]:
        return sorted({name.kind.preset for name, group in self.main.items() if group.is_ours})

    @property
    def other_kinds(self) -> list[Kind]:
        """Other algorithms."""
        return [kind for kind in self.kinds if kind.preset not in self.our_presets]

    def of_kind(self, kind: Kind) -> dict[str, Group]:
        """By task."""
        return {name.env_id: group for name, group in self.main.items() if name.kind == kind}


class Incomplete(Exception):
    """The run may be fine, but it has not ended."""


def read_study(folder: Path) -> Study:
    runs: dict[Name, list[Run]] = {}
    left_out: list[str] = []
    for path in sorted(path for path in folder.glob("**/*/*/*/*") if path.is_dir() and path.name.isdigit()):
        shown = path.relative_to(folder).as_posix()
        try:
            run = read_run(path)
            together = runs.setdefault(run.name, [])
            require(run.seed not in [other.seed for other in together], "there is another run of this seed")
            together.append(run)
        except Incomplete as reason:
            left_out.append(f"{shown} is incomplete: {reason}")
        except (OSError, ValueError) as reason:
            left_out.append(f"{shown} is damaged: {reason}")
    groups = {name: grouped(name, members, left_out) for name, members in sorted(runs.items())}
    return Study(groups, left_out)


def grouped(name: Name, runs: Sequence[Run], left_out: list[str]) -> Group:
    """The runs of the largest budget, by seed."""
    budget = max(run.budget for run in runs)
    left_out += [f"{name}/{run.seed} is shorter: {run.budget} of {budget} steps" for run in runs if run.budget < budget]
    return Group(name, sorted((run for run in runs if run.budget == budget), key=lambda run: run.seed))


def read_run(folder: Path) -> Run:
    name = Name(folder.parents[2].name, Kind(folder.parents[1].name, folder.parent.name))
    facts, config = read_facts(folder / "run.json"), read_config(folder / "config.toml")
    found, due = (str(facts.get("env")).replace("/", "-"), facts.get("seed")), (name.env_id, int(folder.name))
    require(found == due, f"run.json is of {found[0]}, seed {found[1]}")
    budget = budget_of(config)
    training = read_columns(folder / "curve.csv", ("steps", "return"))
    evaluations = read_columns(folder / "evaluations.csv", ("steps", "mean"), counted="returns")
    times = read_columns(folder / "times.csv", ("steps", "seconds"))
    done = int(evaluations["steps"][-1]) if len(evaluations["steps"]) else 0
    if done < budget:
        raise Incomplete(f"evaluated up to step {done} of {budget}")
    known = np.isfinite(training["return"])  # before the first episode has ended nothing is
    require(bool(known.any()), "curve.csv has no return")
    steps, returns = training["steps"][known], training["return"][known]
    clock = curve("times.csv", times["steps"], times["seconds"])
    return Run(
        name, due[1], budget, "method" in config, ablation(name.kind, facts, config),
        training=curve("curve.csv", steps, returns),
        evaluation=curve("evaluations.csv", evaluations["steps"], evaluations["mean"]),
        clock=curve("times.csv", np.interp(steps, clock.x, clock.y), returns),
        seconds=float(clock.y[-1]),
        episodes=int(evaluations["returns"][-1]),
    )  # fmt: skip


def budget_of(config: Mapping[str, Any]) -> int:
    steps = config.get("steps")
    if not isinstance(steps, int) or steps < 1:
        raise ValueError("config.toml has no number of steps")
    return steps


def ablation(kind: Kind, facts: Mapping[str, Any], config: Mapping[str, Any]) -> Kind | None:
    """What it is an ablation of, if it is one."""
    if "method" not in config:
        return None
    true = Kind(Path(str(facts.get("preset"))).stem, str(config["method"]))
    return None if true == kind else true


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Incomplete(f"it has no {path.name}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text") from None


def read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from None
    require(isinstance(facts, dict), f"{path.name} is not a JSON object")
    return dict(facts)


def read_config(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name} is not TOML: {error}") from None


def read_columns(path: Path, wanted: Sequence[str], counted: str = "") -> dict[str, Array]:
    """Columns of numbers [n]; of the column `counted`, how many numbers stand in each cell."""
    rows = list(csv.DictReader(read_text(path).splitlines()))
    try:
        columns = {name: np.array([float(row[name]) for row in rows]) for name in wanted}
        if counted:
            columns[counted] = np.array([float(len(row[counted].split())) for row in rows])
    except KeyError as error:
        raise ValueError(f"{path.name} has no column {error}") from None
    except (TypeError, AttributeError, ValueError, csv.Error) as error:
        raise ValueError(f"{path.name} has a row that is no row of numbers: {error}") from None
    return columns


def curve(source: str, x: Array, y: Array) -> Curve:
    fine = len(x) > 0 and bool(np.isfinite(x).all() and np.isfinite(y).all() and (np.diff(x) >= 0).all())
    require(fine, f"{source} must hold finite numbers, and steps and seconds that never fall")
    return Curve(x, y)

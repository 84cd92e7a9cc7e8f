"""One run of a study, as the files in its folder tell it.

It reads config.toml (`steps`; `method` if it is one of ours), run.json (`env`, `seed`, `preset`), curve.csv,
evaluations.csv and times.csv. `geonpg compare` calls a run's folder <task>/<preset or algorithm>/<method or
settings>/<seed>, and its files must agree; the folder of a run by `geonpg train` may have any name.
"""

import csv
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from geonpg.configs import load, parse_toml, to_toml
from geonpg.errors import Refused, require
from geonpg.scripts.common.intervals import Array

CHANGED = ", "  # between a preset's name and settings that are not its own
# Settings that are part of a run's name, or decide how long it is and how it is watched, but not what it learns.
NOT_LEARNT = ("method", "description", "steps", "eval_every", "eval_episodes", "env_threads", "torch_threads")


class Contender(NamedTuple):
    """What is compared: a preset, perhaps changed, with a method of ours, or an algorithm with its settings."""

    preset: str
    method: str

    def __str__(self) -> str:
        preset, *changes = self.preset.split(CHANGED)
        return CHANGED.join([f"{preset}/{self.method}", *changes])


class GroupName(NamedTuple):
    """A contender on a task: what all seeds of a group share."""

    env_id: str
    contender: Contender

    def __str__(self) -> str:
        return f"{self.env_id}/{self.contender}"


@dataclass(frozen=True)
class ReturnCurve:
    """Returns [n] over steps or seconds [n], which never decrease; all finite. A finished run has at least one."""

    x: Array
    y: Array

    def at(self, x: Array) -> Array:
        """Interpolate; NaN before the first point, the last value after the last."""
        return np.interp(x, self.x, self.y, left=np.nan)

    def first_from(self, x: float) -> float:
        """The first value at `x` or later, the last if there is none."""
        return float(self.y[min(int(np.searchsorted(self.x, x)), len(self.y) - 1)])


@dataclass(frozen=True)
class RecordedRun:
    """What the files of a run tell; each has at least one row, evaluations of an unfinished run perhaps none."""

    name: GroupName
    seed: int
    budget: int
    is_ours: bool
    ablation_of: Contender | None
    training: ReturnCurve  # return of training episodes over steps
    evaluation: ReturnCurve  # mean of deterministic episodes over steps
    clock: ReturnCurve  # return of training episodes over seconds
    seconds: float
    episodes: Sequence[int]  # of each evaluation
    is_placed: bool  # in a folder whose place says what the run is
    settings: Mapping[str, Any]  # those that decide what it learns, beside its method
    preset_settings: Mapping[str, Any]  # the same as its preset has them today; empty if that is not known

    @property
    def has_ended(self) -> bool:
        """Whether it was evaluated at its last step."""
        return last_step(self.evaluation) >= self.budget


class Incomplete(Exception):
    """The run may be fine, but there is nothing to show of it yet."""


def last_step(curve: ReturnCurve) -> int:
    """Step of the last point; 0 without one."""
    return int(curve.x[-1]) if len(curve.x) else 0


def read_run(folder: Path, is_placed: bool) -> RecordedRun:
    """Read the run in a folder whose place says what the run is (`is_placed`), or leaves that to its files."""
    facts, config = read_facts(folder / "run.json"), read_config(folder / "config.toml")
    name, seed = placed(folder, facts) if is_placed else declared(facts, config)
    budget = budget_of(config)
    training = read_columns(folder / "curve.csv", ("steps", "return"))
    evaluations = read_columns(folder / "evaluations.csv", ("steps", "mean"), counted="returns")
    times = read_columns(folder / "times.csv", ("steps", "seconds"))
    evaluation = curve("evaluations.csv", evaluations["steps"], evaluations["mean"])
    clock = curve("times.csv", times["steps"], times["seconds"])
    known = np.isfinite(training["return"])  # before the first episode has ended nothing is
    steps, returns = training["steps"][known], training["return"][known]
    if not len(steps) and last_step(evaluation) < budget:
        raise Incomplete("no episode of training has ended yet")
    require(len(steps) > 0, "curve.csv has no return")
    require(len(clock.x) > 0, "times.csv has no row")
    return RecordedRun(
        name, seed, budget, "method" in config, ablation(name.contender, facts, config),
        training=curve("curve.csv", steps, returns),
        evaluation=evaluation,
        clock=curve("times.csv", np.interp(steps, clock.x, clock.y), returns),
        seconds=float(clock.y[-1]),
        episodes=[int(count) for count in evaluations["returns"]],
        is_placed=is_placed,
        settings=learnt_by(config),
        preset_settings={} if is_placed else preset_settings_of(facts),
    )  # fmt: skip


def placed(folder: Path, facts: Mapping[str, Any]) -> tuple[GroupName, int]:
    """Name and seed by the folder's place; run.json must agree."""
    name = GroupName(folder.parents[2].name, Contender(folder.parents[1].name, folder.parent.name))
    found, due = (str(facts.get("env")).replace("/", "-"), facts.get("seed")), (name.env_id, int(folder.name))
    require(found == due, f"run.json belongs to {found[0]}, seed {found[1]}")
    return name, due[1]


def declared(facts: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[GroupName, int]:
    """Name and seed by the files of a run of ours."""
    env_id, seed, preset, method = facts.get("env"), facts.get("seed"), facts.get("preset"), config.get("method")
    if not (isinstance(env_id, str) and isinstance(seed, int) and isinstance(preset, str)):
        raise Refused("run.json must name an environment, a seed and a preset")
    if not isinstance(method, str):
        raise Refused("config.toml names no method: baseline runs must be at <task>/<algorithm>/<settings>/<seed>/")
    return GroupName(env_id.replace("/", "-"), Contender(Path(preset).stem, method)), seed


def learnt_by(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings that decide what a run learns."""
    return {key: value for key, value in config.items() if key not in NOT_LEARNT}


def preset_settings_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a run's preset has today on its task; empty if it cannot be read."""
    try:
        return learnt_by(tomllib.loads(to_toml(load(facts["preset"], facts["env"]))))
    except (Refused, OSError):  # another version's, or a file that is no longer there
        return {}


def budget_of(config: Mapping[str, Any]) -> int:
    """Number of steps that a run was begun with."""
    steps = config.get("steps")
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise Refused("config.toml has no number of steps")
    return steps


def ablation(contender: Contender, facts: Mapping[str, Any], config: Mapping[str, Any]) -> Contender | None:
    """The contender that a run is an ablation of; None if it is called after its own preset and method."""
    if "method" not in config:
        return None
    whole = Contender(Path(str(facts.get("preset"))).stem, str(config["method"]))
    return None if whole == contender else whole


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Incomplete(f"it has no {path.name}") from None
    except UnicodeDecodeError:
        raise Refused(f"{path.name} is not UTF-8 text") from None


def read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise Refused(f"{path.name} is not JSON: {error}") from None
    require(isinstance(facts, dict), f"{path.name} is not a JSON object")
    return dict(facts)


def read_config(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{path.name} is not TOML: {error}") from None


def read_columns(path: Path, wanted: Sequence[str], counted: str = "") -> dict[str, Array]:
    """Columns of numbers [n]; of the column `counted`, how many numbers stand in each cell."""
    lines = read_text(path).splitlines()
    try:
        rows = list(csv.DictReader(lines))
        columns = {name: np.array([float(row[name]) for row in rows]) for name in wanted}
        if counted:
            columns[counted] = np.array([float(len(row[counted].split())) for row in rows])
    except KeyError as error:
        raise Refused(f"{path.name} has no column {error}") from None
    except (TypeError, AttributeError, ValueError, csv.Error) as error:
        raise Refused(f"{path.name} has a row that is no row of numbers: {error}") from None
    return columns


def curve(source: str, x: Array, y: Array) -> ReturnCurve:
    fine = np.isfinite(x).all() and np.isfinite(y).all() and (np.diff(x) >= 0).all()
    require(bool(fine), f"{source} must hold finite numbers, with steps and seconds that never decrease")
    return ReturnCurve(x, y)

"""One run of a study, as the files in its folder tell it.

It reads config.toml (`steps`; `method` if it is one of ours), run.json (`env`, `seed`, `preset`), curve.csv,
evaluations.csv and times.csv. `geonpg compare` calls a run's folder <task>/<preset or algorithm>/<method or
settings>/<seed>, and its files must agree; the folder of a run by `geonpg train` may have any name.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from geonpg.configs import load, parse_toml, to_toml
from geonpg.errors import Refused, require
from geonpg.scripts.common.artifacts import file_name
from geonpg.scripts.common.intervals import Array
from geonpg.scripts.runs.folder import CONFIG, CURVE, EVALUATIONS, FACTS, TIMES

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
    """Read the run in a folder whose place says what the run is (`is_placed`), or leaves that to its files.

    Incomplete if there is nothing to show of it yet, Refused if a file is damaged; both name the file.
    """
    try:
        facts, config = read_facts(folder), read_config(folder)
        name, seed = placed(folder, facts) if is_placed else declared(facts, config)
        budget = budget_of(config)
        training, evaluations, times = CURVE.read(folder), EVALUATIONS.read(folder), TIMES.read(folder)
    except FileNotFoundError as error:
        raise Incomplete(f"it has no {Path(error.filename).name}") from None
    evaluation = return_curve(EVALUATIONS.file, [(row.steps, row.mean) for row in evaluations])
    # before the first training episode has ended there is no return
    known = return_curve(CURVE.file, [(row.steps, row.return_) for row in training if isfinite(row.return_)])
    clock = return_curve(TIMES.file, [(row.steps, row.seconds) for row in times])
    if not len(known.x) and last_step(evaluation) < budget:
        raise Incomplete("no episode of training has ended yet")
    require(len(known.x) > 0, f"{CURVE.file} has no return")
    require(len(clock.x) > 0, f"{TIMES.file} has no row")
    return RecordedRun(
        name, seed, budget, "method" in config, ablation(name.contender, facts, config),
        training=known,
        evaluation=evaluation,
        clock=checked(TIMES.file, np.interp(known.x, clock.x, clock.y), known.y),
        seconds=float(clock.y[-1]),
        episodes=[len(row.returns) for row in evaluations],
        is_placed=is_placed,
        settings=learnt_by(config),
        preset_settings={} if is_placed else preset_settings_of(facts),
    )  # fmt: skip


def placed(folder: Path, facts: Mapping[str, Any]) -> tuple[GroupName, int]:
    """Name and seed by the folder's place; run.json must agree."""
    name = GroupName(folder.parents[2].name, Contender(folder.parents[1].name, folder.parent.name))
    found, due = (file_name(str(facts.get("env"))), facts.get("seed")), (name.env_id, int(folder.name))
    require(found == due, f"{FACTS} belongs to {found[0]}, seed {found[1]}")
    return name, due[1]


def declared(facts: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[GroupName, int]:
    """Name and seed by the files of a run of ours."""
    env_id, seed, preset, method = facts.get("env"), facts.get("seed"), facts.get("preset"), config.get("method")
    if not (isinstance(env_id, str) and isinstance(seed, int) and isinstance(preset, str)):
        raise Refused(f"{FACTS} must name an environment, a seed and a preset")
    if not isinstance(method, str):
        raise Refused(f"{CONFIG} names no method: baseline runs must be at <task>/<algorithm>/<settings>/<seed>/")
    return GroupName(file_name(env_id), Contender(Path(preset).stem, method)), seed


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
        raise Refused(f"{CONFIG} has no number of steps")
    return steps


def ablation(contender: Contender, facts: Mapping[str, Any], config: Mapping[str, Any]) -> Contender | None:
    """The contender that a run is an ablation of; None if it is called after its own preset and method."""
    if "method" not in config:
        return None
    whole = Contender(Path(str(facts.get("preset"))).stem, str(config["method"]))
    return None if whole == contender else whole


def read_text(path: Path) -> str:
    """Text of a file; Refused if it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Refused(f"{path.name} is not UTF-8 text") from None


def read_facts(folder: Path) -> dict[str, Any]:
    """What the run.json of any folder says."""
    try:
        facts = json.loads(read_text(folder / FACTS))
    except (json.JSONDecodeError, RecursionError) as error:
        raise Refused(f"{FACTS} is not JSON: {error}") from None
    require(isinstance(facts, dict), f"{FACTS} is not a JSON object")
    return dict(facts)


def read_config(folder: Path) -> dict[str, Any]:
    """What the config.toml of any folder says, settings that nobody knows included."""
    try:
        return parse_toml(read_text(folder / CONFIG))
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{CONFIG} is not TOML: {error}") from None


def return_curve(file: str, points: Sequence[tuple[float, float]]) -> ReturnCurve:
    """A curve through points of a file."""
    try:
        x, y = np.array(points, dtype=np.float64).reshape(-1, 2).T
    except OverflowError as error:
        raise Refused(f"{file} has a number that is too large: {error}") from None
    return checked(file, x, y)


def checked(file: str, x: Array, y: Array) -> ReturnCurve:
    """The curve of these values; Refused if they cannot be one."""
    fine = np.isfinite(x).all() and np.isfinite(y).all() and (np.diff(x) >= 0).all()
    require(bool(fine), f"{file} must hold finite numbers, with steps and seconds that never decrease")
    return ReturnCurve(x, y)

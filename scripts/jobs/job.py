"""What a job of `geonpg compare` is: one run, ours or a baseline's, apart from who runs it, where and when.

A job's name is its folder: <environment>/<preset, label or algorithm>/<method or settings>/<seed>.
"""

import csv
import json
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from geonpg.configs import load, parse_toml, spelled, to_toml
from geonpg.errors import Refused, require
from geonpg.files import write_text
from geonpg.scripts.runs import baseline as baselines
from geonpg.scripts.runs.folder import DONE, first_difference, has_rows, naming

MADE = ("best.ckpt", "final.ckpt", "events.out.*", ".*.tmp", "checkpoints/step_*.ckpt", "checkpoints/.step_*.tmp")
COMPACT = ("config.toml", "run.json", "curve.csv", "evaluations.csv", "times.csv", DONE)  # what stays of a run


@dataclass(frozen=True)
class Job:
    """One run. `config` is what its config.toml says; `program` with `arguments` begins it, given a folder."""

    env_id: str
    family: str  # preset, label or algorithm
    variant: str  # method, or settings of the algorithm
    seed: int
    config: Mapping[str, Any]
    program: str
    arguments: tuple[str, ...]
    preset: str = ""  # of a run of ours: its name or its file
    folder: str = ""  # instead of the name below

    @property
    def name(self) -> str:
        return self.folder or f"{self.env_id.replace('/', '-')}/{self.family}/{self.variant}/{self.seed}"

    @property
    def steps(self) -> int:
        return int(self.config["steps"])

    def order(self, folder: Path) -> list[str]:
        """The script and its arguments that begin the run in this folder, or go on with it there."""
        what = [*naming(self.env_id), "--resume"] if folder.exists() else [*self.arguments, "--folder"]
        return [self.program, *what, str(folder)]


def our_job(env_id: str, preset: str, label: str | None, seed: int, overrides: Mapping[str, Any]) -> Job:
    """A run of ours. `overrides`: method, steps and whatever else is not the preset's."""
    settings = load(preset, env_id, overrides)
    chosen = (f"--set={key}={spelled(value)}" for key, value in overrides.items())
    arguments = ("--env", env_id, "--seed", str(seed), "--preset", preset, *chosen)
    family = label or Path(preset).stem
    return Job(env_id, family, settings.method, seed, tomllib.loads(to_toml(settings)), "train", arguments, preset)


def baseline_job(env_id: str, algorithm: str, settings: str, seed: int, budget: Mapping[str, int]) -> Job:
    config = baselines.config_of(algorithm, settings, env_id, budget)
    chosen = (f"--{key.replace('_', '-')}={value}" for key, value in budget.items())
    arguments = ("--env", env_id, "--seed", str(seed), "--algorithm", algorithm, "--settings", settings, *chosen)
    return Job(env_id, algorithm, settings, seed, config, "runs.baseline", arguments)


def unique(jobs: Iterable[Job]) -> list[Job]:
    """In order, each once; two that differ under one name die."""
    found: dict[str, Job] = {}
    for job in jobs:
        same = found.setdefault(job.name, job)
        difference = first_difference(same.config, job.config)
        if difference:
            raise Refused(f"two groups make {job.name}, and differ in {difference}: give one of them a label")
    return list(found.values())


def check_recorded(job: Job, folder: Path) -> None:
    """A folder that holds another run than the job's dies: it must be neither reported nor gone on with as the job."""
    if not folder.exists():
        return
    difference = first_difference(recorded_config(folder), job.config)
    if difference:
        advice = "move it away, give the group a label, or choose other --results"
        raise Refused(f"{folder} was made with other settings, {difference}: {advice}")
    lost = (folder / DONE).exists() and not is_done(folder) and not any(folder.glob("checkpoints/step_*.ckpt"))
    cure = "put it back, or remove the folder to make the run again"
    require(not lost, f"{folder} has ended, but its evaluations.csv is missing or empty: {cure}")


def recorded_config(folder: Path) -> dict[str, Any]:
    """What the config.toml of a run says."""
    try:
        return parse_toml((folder / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{folder} is no run folder: {error}") from None


def is_done(folder: Path) -> bool:
    """Whether the run has ended and its results are there."""
    return (folder / DONE).exists() and has_rows(folder / "evaluations.csv")


def finish(folder: Path) -> None:
    """Say that the run in a folder is complete; what interrupted ones have left beside it goes."""
    last = last_row(folder / "evaluations.csv")
    write_text(folder / DONE, json.dumps({"steps": int(last["steps"]), "mean": float(last["mean"])}) + "\n")
    for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):
        rmtree(leftover, ignore_errors=True)


def compact(folder: Path) -> None:
    """Drop the models and checkpoints of a run that is done; what a report needs, and what others put there, stays."""
    for entry in [path for pattern in MADE for path in folder.glob(pattern)]:
        entry.unlink()
    with suppress(OSError):  # something else is in it, or it is not there
        (folder / "checkpoints").rmdir()


def last_row(path: Path) -> dict[str, str]:
    """The last row of a table, by column; nothing while there is none."""
    try:
        columns, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError):
        return {}
    return dict(zip(columns, rows[-1], strict=True)) if rows else {}

"""A job of `geonpg compare`: one run, ours or a baseline's, apart from who runs it, where and when.

A job's name is its folder: <environment>/<preset, label or algorithm>/<method or settings>/<seed>.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geonpg.configs import load, spelled, to_toml
from geonpg.errors import Refused, require
from geonpg.scripts.common.artifacts import file_name
from geonpg.scripts.common.pin import require_pinned
from geonpg.scripts.runs.baseline_plan import config_of
from geonpg.scripts.runs.folder import EVALUATIONS, config_difference, has_lost_results, read_config
from geonpg.scripts.runs.trust import env_arguments


@dataclass(frozen=True)
class Job:
    """One run.

    config: the contents of its config.toml.
    program, arguments: the script that begins it, without the folder.
    """

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
        """The run's folder, relative to the results."""
        return self.folder or f"{file_name(self.env_id)}/{self.family}/{self.variant}/{self.seed}"

    @property
    def steps(self) -> int:
        """Environment steps in total."""
        return int(self.config["steps"])

    def order(self, folder: Path) -> list[str]:
        """Return the script and the arguments that begin the run in this folder, or resume it there."""
        what = [*env_arguments(self.env_id), "--resume"] if folder.exists() else [*self.arguments, "--folder"]
        return [self.program, *what, str(folder)]


def our_job(env_id: str, preset: str, label: str | None, seed: int, overrides: Mapping[str, Any]) -> Job:
    """Make the job of our own agent; `overrides` are method, steps and whatever else is not the preset's."""
    settings = load(preset, env_id, overrides)
    chosen = (f"--set={key}={spelled(value)}" for key, value in overrides.items())
    arguments = ("--env", env_id, "--seed", str(seed), "--preset", preset, *chosen)
    family = label or Path(preset).stem
    return Job(env_id, family, settings.method, seed, tomllib.loads(to_toml(settings)), "train", arguments, preset)


def baseline_job(env_id: str, algorithm: str, settings: str, seed: int, budget: Mapping[str, int]) -> Job:
    """Make the job of a baseline; `budget` is its part of BUDGET that is not at our defaults."""
    config = config_of(algorithm, settings, env_id, budget)
    chosen = (f"--{key.replace('_', '-')}={value}" for key, value in budget.items())
    arguments = ("--env", env_id, "--seed", str(seed), "--algorithm", algorithm, "--settings", settings, *chosen)
    return Job(env_id, algorithm, settings, seed, config, "runs.baseline", arguments)


def unique(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs in order without repetitions; raise Refused if two of one name differ."""
    found: dict[str, Job] = {}
    for job in jobs:
        same = found.setdefault(job.name, job)
        difference = config_difference(same.config, job.config)
        if difference:
            raise Refused(f"two groups make {job.name}, and differ in {difference}: give one of them a label")
    return list(found.values())


def check_recorded(job: Job, folder: Path) -> None:
    """Refuse a folder that holds another run than the job's, or one whose results are lost."""
    if not folder.exists():
        return
    advice = "move it away, give the group a label, or choose other --results"
    require_pinned(folder, config_difference(read_config(folder), job.config), advice)
    cure = "put it back, or remove the folder to make the run again"
    lost = f"{folder} has ended, but its {EVALUATIONS.file} is missing or empty"
    require(not has_lost_results(folder), f"{lost}: {cure}")

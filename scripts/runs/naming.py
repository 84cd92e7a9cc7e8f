"""Default names of run folders, messages about folders that are taken, and commands to suggest."""

import hashlib
import shlex
from dataclasses import asdict
from pathlib import Path

from geonpg.configs import load, spelled
from geonpg.errors import Refused
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.recorded import difference, plan_of
from geonpg.scripts.runs.trust import env_arguments

UNNAMED = ("method", "steps", "env_threads")  # named anyway, free to change, without effect on results
LONGEST = 120  # characters of settings in a name; file systems take 255 in all


def run_name(plan: OurPlan) -> str:
    """Name a run after its environment, preset, method, settings other than the preset's, and seed."""
    usual = asdict(load(plan.preset, plan.env_id))
    chosen = {key: value for key, value in asdict(plan.settings).items() if key not in UNNAMED and value != usual[key]}
    settings = "_".join(f"{key}={spelled(value)}" for key, value in chosen.items())
    if len(settings) > LONGEST:
        settings = f"{settings[:LONGEST]}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"
    stem, seed = plan.name.rsplit("_", 1)
    return "_".join(part for part in (stem, settings, seed) if part)


def why_taken(folder: Path, plan: OurPlan) -> str:
    """Explain why a new run cannot use a folder: it holds the same run, another one, or something else."""
    try:
        there = plan_of(folder)
    except Refused as error:
        return f"{error}; choose another folder by --folder"
    other = difference(folder, plan)
    if other:
        return f"{folder} holds another run, which differs in {other}: choose another folder by --folder"
    more = ["--steps", str(plan.settings.steps)] if plan.settings.steps > there.settings.steps else []
    command = shlex.join(["geonpg", "train", "--resume", str(folder), *env_arguments(plan.env_id), *more])
    return f"{folder} holds this run already: go on with it by `{command}`, or begin another by --seed or --folder"


def next_commands(folder: Path, env_id: str, curves: Path | None = None) -> str:
    """Suggest two commands after training: a video, and the curves of the run or of all runs in `curves`."""
    watch = shlex.join(
        ["geonpg", "evaluate", str(folder), *env_arguments(env_id), "--video", str(folder / "final.mp4")]
    )
    board = shlex.join(["tensorboard", "--logdir", str(curves or folder)])
    return f"watch it:    {watch}\nthe curves:  {board}"

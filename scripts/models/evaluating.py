"""What `geonpg evaluate` does with its arguments: numbers of a trained policy, its video, its graph."""

import json
import logging
import os
import shlex
import sys
from argparse import Namespace
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from geonpg.envs.spaces import one_line
from geonpg.errors import Refused, require
from geonpg.finite import BrokenEnvironment
from geonpg.scripts.common.intervals import student
from geonpg.scripts.models.loading import load
from geonpg.scripts.models.normalization import beside
from geonpg.scripts.models.policy import TrainedPolicy
from geonpg.scripts.runs.building import play, prepare

# What an option needs beyond the project's own dependencies: modules, and what pip calls them.
NEEDS = {
    "video": {"imageio_ffmpeg": "imageio-ffmpeg"},
    "export": {"onnx": "onnx", "onnxruntime": "onnxruntime"},
}
SUFFIXES = {"video": ".mp4", "export": ".onnx"}


def check_output(option: str, path: Path | None) -> None:
    """What can be known before any work is done."""
    if path is None:
        return
    missing = [package for module, package in NEEDS[option].items() if find_spec(module) is None]
    require(not missing, f"--{option} needs more packages: pip install {' '.join(missing)}")
    suffix, folder = SUFFIXES[option], path.parent
    require(path.suffix == suffix, f"--{option} writes a {suffix} file, not {path.name}")
    require(folder.is_dir() and os.access(folder, os.W_OK), f"{folder} is no folder that can be written to")


def interval(returns: NDArray[np.float64]) -> tuple[float, float] | None:
    """Student's 95 % confidence interval of the mean; there is none for a single number."""
    found = student(returns)
    return (float(found.low), float(found.high)) if len(returns) > 1 else None


def assess(trained: TrainedPolicy, episodes: int, seed: int, deterministic: bool) -> dict[str, Any]:
    """Play that many episodes; plain data about them."""
    torch.manual_seed(seed)  # decides the actions that are drawn
    with closing(trained.make_env(episodes, seed)) as env:
        returns, lengths = play(trained, env, deterministic)
    return {
        "model": str(trained.path),
        "env": trained.env_id,
        "steps": trained.steps,
        "episodes": episodes,
        "seed": seed,
        "deterministic": deterministic,
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "interval": interval(returns),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "length": float(lengths.mean()),
        "returns": returns.tolist(),
        "lengths": lengths.tolist(),
    }


def sentence(result: dict[str, Any]) -> str:
    """What `assess` found, for people."""
    kind = "deterministic" if result["deterministic"] else "stochastic"
    plural = "" if result["episodes"] == 1 else "s"
    bounds = "95 % t-interval of the mean {:.1f} to {:.1f}, ".format(*result["interval"]) if result["interval"] else ""
    return (
        f"{result['model']} ({result['env']}, {result['steps']} steps): {result['mean']:.1f} ± {result['std']:.1f} "
        f"over {result['episodes']} {kind} episode{plural}, {bounds}"
        f"min {result['min']:.1f}, max {result['max']:.1f}, length {result['length']:.1f}"
    )


def note_normalization(path: Path) -> None:
    """Say where statistics may be that a model of SB3 was trained with; without them its numbers would be others."""
    for found in beside(path):
        advice = f"if they are of this model, pass --normalization {shlex.quote(str(found))}"
        print(f"note: observations stay raw, and {found} looks like statistics of them: {advice}", file=sys.stderr)


def execute(arguments: Namespace) -> None:
    for option in NEEDS:
        check_output(option, getattr(arguments, option))
    path, is_zip = arguments.path, arguments.path.suffix == ".zip" and arguments.path.is_file()
    require(not is_zip or arguments.env is not None, f"{path} does not say its environment: name it by --env")
    trained = load(path, arguments.model, arguments.env, arguments.normalization)
    prepare(trained.settings)
    deterministic = not arguments.stochastic
    if is_zip and arguments.normalization is None:
        note_normalization(path)
    if arguments.export is not None:
        from geonpg.scripts.models.export import check_exportable

        check_exportable(trained)
    result = assess(trained, arguments.episodes, arguments.seed, deterministic)
    tell = (lambda text: None) if arguments.json else print
    tell(sentence(result))
    if arguments.video is not None:
        from geonpg.scripts.models.video import record

        torch.manual_seed(arguments.seed)
        facts = record(trained, arguments.video, arguments.seed, deterministic, result["lengths"][0])
        result["video"] = facts
        tell(f"{facts['file']}: an episode of {facts['length']} steps, return {facts['return']:.1f}")
    if arguments.export is not None:
        from geonpg.scripts.models.export import export

        facts = export(trained, arguments.export, arguments.seed)
        result["export"] = facts
        tell(
            f"{facts['file']}: differs from the torch policy by {facts['difference']:.1e} at most, "
            f"on {facts['observations']} observations"
        )
    if arguments.json:
        print(json.dumps(result))


def evaluate(arguments: Namespace) -> int:
    """Do what the arguments ask for; the command's exit code."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        execute(arguments)
    except (Refused, OSError, BrokenEnvironment, DependencyNotInstalled) as error:
        print(f"{getattr(error, 'frames', '')}geonpg evaluate: {one_line(error)}", file=sys.stderr)
        return 2
    return 0

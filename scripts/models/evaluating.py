"""What `geonpg evaluate` does with its arguments: numbers of a trained policy, its film, its graph."""

import json
import logging
import os
import shlex
import sys
from argparse import Namespace
from contextlib import closing
from dataclasses import replace
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
from geonpg.scripts.common.parser import refuse
from geonpg.scripts.models.loading import load
from geonpg.scripts.models.normalization import beside
from geonpg.scripts.models.policy import TrainedPolicy
from geonpg.scripts.runs.evaluation import play
from geonpg.scripts.runs.process import prepare

# What a file needs beyond the project's own dependencies: modules, and what pip calls them.
NEEDS = {
    ".mp4": {"imageio_ffmpeg": "imageio-ffmpeg"},
    ".onnx": {"onnx": "onnx", "onnxruntime": "onnxruntime"},
}
SUFFIXES = {"video": (".mp4", ".gif", ".webp"), "export": (".onnx",)}
OF_VIDEOS = "fps", "width", "seconds", "colours", "curve"  # options, by the names of Look's fields


def check_output(option: str, path: Path | None) -> None:
    """Refuse what can be known to fail before any work is done."""
    if path is None:
        return
    *others, last = SUFFIXES[option]
    legal = f"{', '.join(others)} or {last}" if others else last
    require(path.suffix in SUFFIXES[option], f"--{option} writes a {legal} file, not {path.name}")
    missing = [package for module, package in NEEDS.get(path.suffix, {}).items() if find_spec(module) is None]
    require(not missing, f"--{option} {path.name} needs more packages: pip install {' '.join(missing)}")
    folder = path.parent
    require(folder.is_dir() and os.access(folder, os.W_OK), f"{folder} is no folder that can be written to")


def check_options(arguments: Namespace) -> None:
    """Refuse files that cannot be written, and options that would do nothing."""
    for option in SUFFIXES:
        check_output(option, getattr(arguments, option))
    for option in OF_VIDEOS:
        require(arguments.video is not None or not getattr(arguments, option), f"--{option} needs --video")
    counted = arguments.colours is None or arguments.video.suffix == ".gif"
    require(counted, "--colours needs --video FILE.gif: only a .gif has a palette")


def interval(returns: NDArray[np.float64]) -> tuple[float, float] | None:
    """Student's 95 % confidence interval of the mean; None for a single number."""
    found = student(returns)
    return (float(found.low), float(found.high)) if len(returns) > 1 else None


def assess(trained: TrainedPolicy, episodes: int, seed: int, deterministic: bool) -> dict[str, Any]:
    """Play that many episodes and return plain data about them."""
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
    """Put what `assess` found into words."""
    kind = "deterministic" if result["deterministic"] else "stochastic"
    plural = "" if result["episodes"] == 1 else "s"
    bounds = "95 % t-interval of the mean {:.1f} to {:.1f}, ".format(*result["interval"]) if result["interval"] else ""
    return (
        f"{result['model']} ({result['env']}, {result['steps']} steps): {result['mean']:.1f} ± {result['std']:.1f} "
        f"over {result['episodes']} {kind} episode{plural}, {bounds}"
        f"min {result['min']:.1f}, max {result['max']:.1f}, length {result['length']:.1f}"
    )


def note_normalization(path: Path) -> None:
    """Point to files that may hold the statistics an SB3 model was trained with; without them its numbers differ."""
    for found in beside(path):
        advice = f"if they are of this model, pass --normalization {shlex.quote(str(found))}"
        print(f"note: observations stay raw, and {found} looks like statistics of them: {advice}", file=sys.stderr)


def loaded(arguments: Namespace) -> TrainedPolicy:
    """Load the policy that the arguments name, and prepare the process for it."""
    path, is_zip = arguments.path, arguments.path.suffix == ".zip" and arguments.path.is_file()
    require(not is_zip or arguments.env is not None, f"{path} does not say its environment: name it by --env")
    trained = load(path, arguments.model, arguments.env, arguments.normalization)
    if is_zip and arguments.normalization is None:
        note_normalization(path)
    prepare(trained.settings)
    return trained


def filmed(trained: TrainedPolicy, arguments: Namespace, expected: int) -> dict[str, Any]:
    """Record an episode as the arguments say, and return plain data about it."""
    from geonpg.scripts.models.film import LOOKS
    from geonpg.scripts.models.video import record

    path: Path = arguments.video
    chosen = {name: getattr(arguments, name) for name in OF_VIDEOS if getattr(arguments, name)}
    torch.manual_seed(arguments.seed)
    return record(
        trained, path, arguments.seed, not arguments.stochastic, replace(LOOKS[path.suffix], **chosen), expected
    )


def execute(arguments: Namespace) -> None:
    """Check everything first, then evaluate, record and export."""
    check_options(arguments)
    trained = loaded(arguments)
    if arguments.export is not None:
        from geonpg.scripts.models.export import check_exportable, export

        check_exportable(trained)
    if arguments.curve:
        from geonpg.scripts.models.curve import check_curve

        check_curve(trained.path.parent)
    result = assess(trained, arguments.episodes, arguments.seed, not arguments.stochastic)
    tell = (lambda text: None) if arguments.json else print
    tell(sentence(result))
    if arguments.video is not None:
        result["video"] = facts = filmed(trained, arguments, result["lengths"][0])
        what = "an episode of {} steps" if facts["whole"] else "the first {} steps of an episode"
        size = f"{arguments.video.stat().st_size / 1e6:.1f} MB"
        tell(f"{facts['file']}: {what.format(facts['length'])}, return {facts['return']:.1f}, {size}")
    if arguments.export is not None:
        result["export"] = facts = export(trained, arguments.export, arguments.seed)
        tell(
            f"{facts['file']}: differs from the torch policy by {facts['difference']:.1e} at most, "
            f"on {facts['observations']} observations"
        )
    if arguments.json:
        print(json.dumps(result))


def evaluate(arguments: Namespace) -> int:
    """Do what the arguments ask for; return the command's exit code."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        execute(arguments)
    except (Refused, OSError, BrokenEnvironment, DependencyNotInstalled) as error:
        return refuse("geonpg evaluate", one_line(error), getattr(error, "frames", ""))
    return 0

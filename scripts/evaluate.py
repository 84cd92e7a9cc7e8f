"""Evaluate a trained policy; record a video of it, export it to ONNX: `geonpg evaluate runs/NAME`."""

import json
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from geonpg.agents.collector import BrokenEnvironment
from geonpg.kfac.choice import require
from geonpg.scripts.building import play
from geonpg.scripts.cli import Parser, count, seed
from geonpg.scripts.intervals import student
from geonpg.scripts.models import KINDS, Model, load, one_line

# What an option needs beyond the project's own dependencies: modules, and what pip calls them.
NEEDS = {
    "video": {"imageio_ffmpeg": "imageio-ffmpeg"},
    "export": {"onnx": "onnx", "onnxruntime": "onnxruntime"},
}
SUFFIXES = {"video": ".mp4", "export": ".onnx"}
MOST_EPISODES = 10_000  # each has an environment of its own


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser("geonpg evaluate", description=__doc__)
    parser.add_argument("path", type=Path, metavar="RUN|MODEL", help=f"{KINDS} (which SB3 unpickles: trust its origin)")
    parser.add_argument("--model", choices=("best", "final"), help="which of a run folder's models (default: final)")
    parser.add_argument("--env", metavar="ID", help="of an SB3 .zip; of others, only if it is module:ID")
    parser.add_argument("--episodes", type=count, default=20)
    parser.add_argument("--seed", type=seed, default=0, help="of the episodes; a run's own evaluations have its seed")
    parser.add_argument("--stochastic", action="store_true", help="draw actions instead of taking the likeliest")
    parser.add_argument("--video", type=Path, metavar="FILE.mp4", help="record one episode")
    parser.add_argument("--export", type=Path, metavar="FILE.onnx", help="raw observations to actions within bounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every episode")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.episodes <= MOST_EPISODES:
        parser.error(f"--episodes must be from 1 to {MOST_EPISODES:,}, not {arguments.episodes}")
    return arguments


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


def assess(model: Model, episodes: int, seed: int, deterministic: bool) -> dict[str, Any]:
    """Plain data about that many episodes."""
    torch.manual_seed(seed)  # decides the actions that are drawn
    env = model.make_env(episodes, seed)
    returns, lengths = play(model.policy, env, deterministic)
    env.close()
    return {
        "model": str(model.path),
        "env": model.env_id,
        "steps": model.steps,
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


def execute(arguments: Namespace) -> None:
    for option in NEEDS:
        check_output(option, getattr(arguments, option))
    model, deterministic = load(arguments.path, arguments.model, arguments.env), not arguments.stochastic
    if arguments.export is not None:
        from geonpg.scripts.export import check_exportable

        check_exportable(model)
    result = assess(model, arguments.episodes, arguments.seed, deterministic)
    tell = (lambda text: None) if arguments.json else print
    tell(sentence(result))
    if arguments.video is not None:
        from geonpg.scripts.video import record

        torch.manual_seed(arguments.seed)
        facts = record(model, arguments.video, arguments.seed, deterministic, result["lengths"][0])
        result["video"] = facts
        tell(f"{facts['file']}: an episode of {facts['length']} steps, return {facts['return']:.1f}")
    if arguments.export is not None:
        from geonpg.scripts.export import export

        facts = export(model, arguments.export, arguments.seed)
        result["export"] = facts
        tell(
            f"{facts['file']}: differs from the torch policy by {facts['difference']:.1e} at most, "
            f"on {facts['observations']} observations"
        )
    if arguments.json:
        print(json.dumps(result))


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        execute(arguments)
    except (ValueError, OSError, BrokenEnvironment, DependencyNotInstalled) as error:
        print(f"geonpg evaluate: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What every run leaves in its folder, ours or a baseline's, and how often."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from geonpg.kfac.choice import require
from geonpg.scripts.artifacts import Table, write_text

CHECKPOINT_SECONDS = 5.0  # between two checkpoints, so that a kill loses less than ten
CURVE_EVERY = 10  # updates per row of the learning curve
FINAL_EPISODES = 20
DONE = "done.json"  # in the folder of a run that `geonpg compare` has ended, and of which it keeps results only

CURVE = ("steps", "return", "length", "kl", "entropy", "explained_variance", "value_loss", "rejected")
EVALUATIONS = ("steps", "mean", "std", "returns")
TIMES = ("steps", "seconds", "rollout", "values", "policy", "critic", "evaluation")


class Stopped(Exception):
    """The run was asked to stop; its state is saved."""


def stopping_at(stop: Callable[[], bool]) -> Callable[[], None]:
    """What to call between steps that `stop()` shall end, by Stopped."""

    def watch() -> None:
        if stop():
            raise Stopped

    return watch


def require_state(folder: Path) -> None:
    """Of a run without checkpoints: it has not come to its first, and does not hold the results of an ended one."""
    gone = f"{folder} has ended and holds its results only, no state to go on from: begin another run"
    require(not (folder / DONE).exists(), gone)


def check_import(env_id: str, named: Collection[str], source: object, option: str = "--env") -> None:
    """Refuse to import the module of a file's `module:Id`, which runs its code, unless the user has named that id."""
    module, colon, _ = env_id.partition(":")
    advice = f"if you trust it, name it by {option} {env_id}"
    require(not colon or env_id in named, f"{source} asks for the module {module!r}, whose import runs code: {advice}")


def recorded_env(env_id: str, named: str | None, source: object) -> str:
    """The environment that a file says, if the user, who may have named one, agrees."""
    require(named in (None, env_id), f"{source} is of {env_id}: --env must say the same, not {named}")
    check_import(env_id, [named] if named else [], source)
    return env_id


def naming(env_id: str) -> list[str]:
    """The arguments beside a file of this environment that `check_import` wants."""
    return ["--env", env_id] if ":" in env_id else []


def write_tables(folder: Path, curve: Sequence[Any], evaluations: Sequence[Any], times: Sequence[Any]) -> None:
    shown = [[*row[:3], " ".join(map(repr, row[3]))] for row in evaluations]
    for name, columns, rows in (("curve", CURVE, curve), ("evaluations", EVALUATIONS, shown), ("times", TIMES, times)):
        write_text(folder / f"{name}.csv", Table(name, name, columns, rows).csv())

"""What every run leaves in its folder, ours or a baseline's, and how often."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from geonpg.agents.forms import Many, OneOf
from geonpg.configs import EARLIER, FIELDS, Settings
from geonpg.errors import require
from geonpg.files import write_text
from geonpg.scripts.common.artifacts import Table

CHECKPOINT_SECONDS = 5.0  # between two checkpoints, so that a kill loses less than ten
CURVE_EVERY = 10  # updates per row of the learning curve
FINAL_EPISODES = 20
DONE = "done.json"  # in the folder of a run that `geonpg compare` has ended, and of which it keeps results only
NO_MATTER = ("description", "env_threads")  # in a config.toml: they change no result

CURVE = ("steps", "return", "length", "kl", "entropy", "explained_variance", "value_loss", "rejected")
EVALUATIONS = ("steps", "mean", "std", "returns")
TIMES = ("steps", "seconds", "rollout", "values", "policy", "critic", "evaluation")

# Of what a checkpoint holds of these tables (see forms.py); SB3's algorithms count no rejected steps.
HISTORY = {
    "curve": Many([0, *[0.0] * (len(CURVE) - 2), OneOf((0, 0.0))]),
    "evaluations": Many([0, 0.0, 0.0, Many(0.0)]),
    "times": Many([0, *[0.0] * (len(TIMES) - 1)]),
    "seconds": dict.fromkeys(TIMES[1:], 0.0),
}


def contradiction(history: Mapping[str, Any], settings: Settings, steps: int) -> str:
    """What shows that a history, of the right form, is not what a run has recorded up to so many steps; in words."""
    if [row[0] for row in history["curve"]] != [row[0] for row in history["times"]]:
        return "its curve and its times are not of the same steps"
    if any(len(row[3]) not in (settings.eval_episodes, FINAL_EPISODES) for row in history["evaluations"]):
        return f"an evaluation does not have {settings.eval_episodes} episodes, or {FINAL_EPISODES} at the end"
    at = [0, *(row[0] for row in history["evaluations"]), steps + 1]
    longest = settings.eval_every + settings.n_envs * settings.n_steps  # an update later than it is due
    if any(not 0 < later - earlier <= longest for earlier, later in pairwise(at)):
        return "its evaluations are not of the steps that they were due at"
    return ""


class Stopped(Exception):
    """The run was asked to stop; its state is saved."""


def stopping_at(stop: Callable[[], bool]) -> Callable[[], None]:
    """What to call between steps that `stop()` shall end, by Stopped."""

    def watch() -> None:
        if stop():
            raise Stopped

    return watch


def require_state(folder: Path) -> None:
    """Refuse to resume a run that has results and no checkpoint: it would begin anew, over them."""
    ended = any((folder / name).exists() for name in (DONE, "final.ckpt"))
    require(not ended, f"{folder} has ended and holds its results only, no state to go on from: begin another run")
    begun = any(has_rows(folder / name) for name in ("curve.csv", "evaluations.csv"))
    require(not begun, f"{folder} holds a learning curve and no checkpoint to go on from: begin another run")


def has_rows(path: Path) -> bool:
    """Whether there is a table with more than its heading."""
    return path.is_file() and len(path.read_bytes().splitlines()) > 1


def tables_of(curve: Sequence[Any], evaluations: Sequence[Any], times: Sequence[Any]) -> dict[str, str]:
    """The text of each table of a run, by its file's name."""
    shown = [[*row[:3], " ".join(map(repr, row[3]))] for row in evaluations]
    parts = ("curve", CURVE, curve), ("evaluations", EVALUATIONS, shown), ("times", TIMES, times)
    return {f"{name}.csv": Table(name, name, columns, rows).csv() for name, columns, rows in parts}


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
    """Write those tables of a run that the folder does not hold yet as they are."""
    for name, text in tables_of(curve, evaluations, times).items():
        if not holds(folder / name, text.encode()):
            write_text(folder / name, text)


def holds(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


def first_difference(
    config: Mapping[str, Any], other: Mapping[str, Any], no_matter: Collection[str] = NO_MATTER
) -> str:
    """The first setting that differs; one that either does not know yet is there what it was before it was one."""
    for key in (key for key in {**config, **other} if key not in no_matter):
        default = EARLIER.get(key, FIELDS[key].default if key in FIELDS else None)
        one, two = config.get(key, default), other.get(key, default)
        if one != two:
            return f"{key} ({one!r} and {two!r})"
    return ""

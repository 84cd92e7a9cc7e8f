"""How the folder of a run appears, and what its run.json says of who made it."""

import errno
import json
import logging
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch

from geonpg.agents.checkpoint import CheckpointError, read
from geonpg.configs.schema import is_int
from geonpg.errors import Refused, require
from geonpg.files import write_text
from geonpg.scripts.common.locks import AtWork

DEVICES = ("cpu", "cuda")


def versions() -> dict[str, str]:
    packages = ("geonpg", "torch", "numpy", "gymnasium", "mujoco", "stable-baselines3")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def git_revision() -> str:
    """Of the source that runs; empty outside a repository."""
    where = Path(__file__).resolve().parent
    command = ["git", "-C", str(where), "describe", "--always", "--dirty", "--abbrev=40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def create(folder: Path, config: str, facts: Mapping[str, Any]) -> None:
    """The folder of a run, with its config.toml and run.json."""
    facts = {**facts, "versions": versions(), "git": git_revision()}
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        write_text(temporary / "config.toml", config)
        write_text(temporary / "run.json", json.dumps(facts, indent=1))
        os.replace(temporary, folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # it was not there when we began
            raise AtWork(folder) from None
        raise OSError(error.errno, error.strerror, str(folder)) from error  # names the folder that was meant
    finally:
        rmtree(temporary, ignore_errors=True)


@dataclass(frozen=True)
class Facts:
    """What a run.json says; runs of SB3's algorithms name no preset."""

    env: str
    seed: int
    preset: str = ""
    device: str = "cpu"
    versions: Mapping[str, str] = field(default_factory=dict)


def facts_of(folder: Path) -> Facts:
    """What the run.json in a folder says, checked."""
    path = folder / "run.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"{folder} is no run folder: {error}") from None
    legal = {
        "env": ("a name", lambda value: isinstance(value, str) and value != ""),
        "seed": ("an integer of at least 0", lambda value: is_int(value) and value >= 0),
        "preset": ("a name", lambda value: isinstance(value, str)),
        "device": (f"one of {', '.join(DEVICES)}", lambda value: value in DEVICES),
        "versions": ("names and versions", is_texts),
    }
    require(isinstance(facts, dict), f"{path} is damaged: it must hold a JSON object")
    for key in ("env", "seed"):
        require(key in facts, f"{path} is damaged: it has no {key}")
    for key, (words, holds) in legal.items():
        value = facts.get(key)
        require(key not in facts or holds(value), f"{path} is damaged: {key} must be {words}, not {value!r}")
    return Facts(**{key: facts[key] for key in legal if key in facts})


def is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def warn_of_changes(facts: Facts) -> None:
    """Say in one line each what may keep a run from going on bit for bit here."""
    here = versions()
    changed = [f"{name} {was}, now {here[name]}" for name, was in facts.versions.items() if here.get(name, was) != was]
    if changed:
        logging.warning("this run was begun with %s: it may not go on bit for bit", "; ".join(changed))
    if facts.device == "cuda" and not torch.cuda.is_available():
        logging.warning("this run was begun on cuda, which is not here: it goes on on the cpu, and not bit for bit")


def warn_of_best(folder: Path, evaluations: Sequence[Any], done: int) -> None:
    """Say if best.ckpt is not the model that the evaluations tell of, after `done` steps; a later one will be again."""
    path = folder / "best.ckpt"
    if not evaluations:
        return
    try:
        steps = read(path).get("steps")
        later = isinstance(steps, int) and steps > done
        wrong = (
            "" if later or steps == max(evaluations, key=itemgetter(1))[0] else f"{path} is not the best model so far"
        )
    except CheckpointError as error:
        wrong = str(error)
    if wrong:
        logging.warning("%s: the next better evaluation writes it anew", wrong)


def inode(folder: Path) -> tuple[int, int] | None:
    """What tells a folder from another one of the same name; None if there is none."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def require_home(folder: Path, home: tuple[int, int] | None) -> None:
    """Stop a run whose folder is not the one that it began in: what it wrote there could never be resumed."""
    if inode(folder) != home:
        raise FileNotFoundError("its folder was removed or replaced while it trained, so it cannot be saved")

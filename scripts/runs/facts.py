"""How a run's folder is created, and what its run.json records about who made it."""

import errno
import json
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch

from geonpg.agents.checkpoint import CheckpointError, read
from geonpg.configs.schema import is_int
from geonpg.errors import Refused, require
from geonpg.files import write_text
from geonpg.scripts.common.locks import AtWork
from geonpg.scripts.runs.folder import BEST, CONFIG, FACTS, Evaluation

DEVICES = ("cpu", "cuda")
KIND = ("cpu family", "model", "CPU implementer", "CPU part")  # of a processor in /proc/cpuinfo: two of x86, two of ARM


def versions() -> dict[str, str]:
    """Return the versions of Python and of every package that a run's bits depend on."""
    packages = ("geonpg", "torch", "numpy", "gymnasium", "mujoco", "stable-baselines3")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def processor() -> str:
    """Return the name of this machine's processor and the numbers of its kind, by which the last bits may differ.

    The name alone may be hidden: an "AMD EPYC" of a cloud is one of several, half as fast or twice.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may hide it
            first, _, _ = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")
            fields = {
                name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())
            }
            kind = [f"{name.lower().removeprefix('cpu ')} {fields[name]}" for name in KIND if name in fields]
            name = fields.get("model name", platform.machine())
            return name + (f" ({', '.join(kind)})" if kind else "")
    return platform.processor() or platform.machine()


def git_revision() -> str:
    """Return the revision of the running source; empty outside a repository."""
    where = Path(__file__).resolve().parent
    command = ["git", "-C", str(where), "describe", "--always", "--dirty", "--abbrev=40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def create(folder: Path, config: str, facts: Mapping[str, Any]) -> None:
    """Create a run's folder with its config.toml and run.json, whole or not at all."""
    facts = {**facts, "versions": versions(), "processor": processor(), "git": git_revision()}
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        write_text(temporary / CONFIG, config)
        write_text(temporary / FACTS, json.dumps(facts, indent=1))
        os.replace(temporary, folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # it was not there when we began
            raise AtWork(folder) from None
        raise OSError(error.errno, error.strerror, str(folder)) from error  # names the folder that was meant
    finally:
        rmtree(temporary, ignore_errors=True)


@dataclass(frozen=True)
class Facts:
    """The contents of a run.json; baselines have no preset."""

    env: str
    seed: int
    preset: str = ""
    device: str = "cpu"
    versions: Mapping[str, str] = field(default_factory=dict)
    processor: str = ""  # older runs did not record it


def facts_of(folder: Path) -> Facts:
    """Read and check the run.json of a folder."""
    path = folder / FACTS
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
        "processor": ("a name", lambda value: isinstance(value, str)),
    }
    require(isinstance(facts, dict), f"{path} is damaged: it must hold a JSON object")
    for key in ("env", "seed"):
        require(key in facts, f"{path} is damaged: it has no {key}")
    for key, (words, holds) in legal.items():
        value = facts.get(key)
        require(key not in facts or holds(value), f"{path} is damaged: {key} must be {words}, not {value!r}")
    return Facts(**{key: facts[key] for key in legal if key in facts})


def is_texts(value: Any) -> bool:
    """Return whether a value is a mapping to strings."""
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def warn_of_changes(facts: Facts) -> None:
    """Warn if versions, processor or device have changed since the run began: it may not continue bit for bit then."""
    here = versions()
    changed = [f"{name} {was}, now {here[name]}" for name, was in facts.versions.items() if here.get(name, was) != was]
    if facts.processor not in ("", processor()):
        changed.append(f"{facts.processor}, now {processor()}")
    if changed:
        logging.warning("this run was begun with %s: it may not go on bit for bit", "; ".join(changed))
    if facts.device == "cuda" and not torch.cuda.is_available():
        logging.warning("this run was begun on cuda, which is not here: it goes on on the cpu, and not bit for bit")


def warn_of_best(folder: Path, best: Evaluation | None, done: int) -> None:
    """Warn if best.ckpt is not the model of the best evaluation; one of a step after `done` will be written again."""
    path = folder / BEST
    if best is None:
        return
    try:
        steps = read(path).get("steps")
        later = isinstance(steps, int) and steps > done
        wrong = "" if later or steps == best.steps else f"{path} is not the best model so far"
    except CheckpointError as error:
        wrong = str(error)
    if wrong:
        logging.warning("%s: the next better evaluation writes it anew", wrong)

"""What `geonpg train` does with its arguments: a run, its progress bar, and how it ends."""

import logging
import shlex
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from geonpg.agents.checkpoint import step_of
from geonpg.configs import load, parse_overrides
from geonpg.errors import Refused
from geonpg.files import named
from geonpg.finite import BrokenEnvironment
from geonpg.kfac import Ranks
from geonpg.scripts.common.locks import alone
from geonpg.scripts.common.stopping import AFTER_UPDATE, Signals, Stopped, listening
from geonpg.scripts.runs.bar import Bar
from geonpg.scripts.runs.building import check_actions
from geonpg.scripts.runs.naming import next_commands, run_name, why_taken
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.process import is_first, joined
from geonpg.scripts.runs.run import Run
from geonpg.scripts.runs.trust import env_arguments


def overrides_from(arguments: Namespace) -> dict[str, Any]:
    """The settings that the command line gives."""
    given = {"method": arguments.method, "steps": arguments.steps, "n_envs": arguments.n_envs}
    return parse_overrides(arguments.set) | {key: value for key, value in given.items() if value is not None}


def plan_from(arguments: Namespace) -> OurPlan:
    """The run that the command line asks for; Refused if something in it cannot be."""
    overrides = overrides_from(arguments)
    settings = load(arguments.preset, arguments.env, overrides)
    check_device(arguments.device)
    check_actions(arguments.env, overrides)
    return OurPlan(arguments.env, arguments.seed, settings, arguments.preset, arguments.device)


def check_device(name: str) -> None:
    """Refuse a device that is not here."""
    legal = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if name not in legal:
        raise Refused(f"device {name!r} is not here: choose one of {', '.join(legal)}")


@contextmanager
def quiet_threads() -> Iterator[None]:
    """Inside, threads say nothing of files that they cannot write: TensorBoard's raises the same error here as well."""
    before = threading.excepthook
    threading.excepthook = lambda failure: None if isinstance(failure.exc_value, OSError) else before(failure)
    try:
        yield
    finally:
        threading.excepthook = before


def prepared(arguments: Namespace, ranks: Ranks) -> AbstractContextManager[Run[Any]]:
    """The run that was asked for, new or gone on with, ready to train, with its folder locked."""
    if arguments.resume:
        take_up = partial(Run.resume, arguments.resume, arguments.steps, ranks, arguments.env)
        return alone(arguments.resume, take_up, holds=is_first())
    plan = plan_from(arguments)
    folder = arguments.folder or arguments.runs / run_name(plan)
    return alone(folder, partial(begun, plan, folder, ranks), holds=is_first())


def begun(plan: OurPlan, folder: Path, ranks: Ranks) -> Run[Any]:
    """Begin a run; Refused, with the reason, if its folder is taken."""
    if is_first() and folder.exists():
        raise Refused(why_taken(folder, plan))
    return Run.begin(plan, folder, ranks)


def execute(run: Run[Any], signals: Signals, ranks: Ranks) -> int:
    """Train the run to its end, or say why it ended before; the command's exit code."""
    if run.is_complete:
        tell(f"{run.folder} is complete: {summary(run)}")
        return 0
    try:
        with closing(Bar(run)) as bar:
            run.train(signals, watch=bar)
    except Stopped:
        tell(f"stopped at {run.steps} steps; go on with: {again(run)}")
        return 128 + (signals.received or signal.SIGTERM)  # it may have come to another rank
    except OSError as error:
        return failed(f"{run.folder} ended at {run.steps} steps: {named(run.folder, error)}")
    except BrokenEnvironment as error:
        return failed(f"{run.folder} ended at {run.steps} steps: {error}; {how_to_go_on(run)}", error.frames)
    except RuntimeError as error:
        if ranks.size == 1:
            raise
        lost = f"{run.folder} lost one of its {ranks.size} processes at {run.steps} steps ({first_line(error)})"
        return failed(f"{lost}; go on with: {again(run)}")
    tell(f"{run.folder}: {summary(run)}")
    return 0


def again(run: Run[Any]) -> str:
    """The command that goes on with a run, with as many processes."""
    size = run.ranks.size
    command = ["geonpg", "train"] if size == 1 else ["torchrun", "--nproc-per-node", str(size), "scripts/train.py"]
    return shlex.join([*command, "--resume", str(run.folder), *env_arguments(run.plan.env_id)])


def how_to_go_on(run: Run[Any]) -> str:
    """From which step the run goes on, and by which command."""
    saved = run.checkpoints.paths()
    return f"go on from step {step_of(saved[-1]) if saved else 0} with: {again(run)}"


def tell(text: str) -> None:
    """Print it once, however many processes there are."""
    if is_first():
        print(text)


def first_line(error: Exception) -> str:
    """The first line of what an exception says."""
    return str(error).split("\n", 1)[0]


def failed(reason: str, frames: str = "") -> int:
    """Print why the command failed, below the environment's own frames; the exit code."""
    print(f"{frames}geonpg train: {reason}", file=sys.stderr)
    return 2


def summary(run: Run[Any]) -> str:
    """The last evaluation in words and, of a run that has left a model, what to do next with it."""
    last = run.history.evaluations[-1]
    found = f"{last.mean:.1f} ± {last.std:.1f} over {len(last.returns)} deterministic episodes after {last.steps} steps"
    return found if run.plan.only_tables else f"{found}\n{next_commands(run.folder, run.plan.env_id)}"


def train(arguments: Namespace) -> int:
    """Train the run that the arguments name; the command's exit code."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        heard = listening(AFTER_UPDATE if is_first() else "")
        with heard as signals, quiet_threads(), joined() as ranks, prepared(arguments, ranks) as run:
            return execute(run, signals, ranks)
    except BrokenEnvironment as error:  # at its first reset
        return failed(str(error), error.frames)
    except (Refused, OSError) as error:
        return failed(str(error)) if is_first() else 2  # the others found the same

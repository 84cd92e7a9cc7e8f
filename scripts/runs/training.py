"""`geonpg train` after its arguments are parsed: a run, its progress bar, and how it ends."""

import logging
import shlex
import signal
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
from geonpg.scripts.common.parser import refuse
from geonpg.scripts.common.stopping import AFTER_UPDATE, Signals, Stopped, listening
from geonpg.scripts.runs.bar import Bar
from geonpg.scripts.runs.building import check_actions
from geonpg.scripts.runs.naming import next_commands, run_name, why_taken
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.process import is_first, joined
from geonpg.scripts.runs.run import Run
from geonpg.scripts.runs.trust import env_arguments


def overrides_from(arguments: Namespace) -> dict[str, Any]:
    """Collect the settings given on the command line."""
    given = {"method": arguments.method, "steps": arguments.steps, "n_envs": arguments.n_envs}
    return parse_overrides(arguments.set) | {key: value for key, value in given.items() if value is not None}


def plan_from(arguments: Namespace) -> OurPlan:
    """Make the plan that the arguments describe; raise Refused if it cannot work."""
    overrides = overrides_from(arguments)
    settings = load(arguments.preset, arguments.env, overrides)
    check_device(arguments.device)
    check_actions(arguments.env, overrides)
    return OurPlan(arguments.env, arguments.seed, settings, arguments.preset, arguments.device)


def check_device(name: str) -> None:
    """Refuse a device that this machine does not have."""
    legal = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if name not in legal:
        raise Refused(f"device {name!r} is not here: choose one of {', '.join(legal)}")


@contextmanager
def quiet_threads() -> Iterator[None]:
    """Silence OSErrors of threads: TensorBoard's writer raises them in the main thread as well."""
    before = threading.excepthook
    threading.excepthook = lambda failure: None if isinstance(failure.exc_value, OSError) else before(failure)
    try:
        yield
    finally:
        threading.excepthook = before


def prepared(arguments: Namespace, ranks: Ranks) -> AbstractContextManager[Run[Any]]:
    """Begin or resume the run that the arguments name, with its folder locked."""
    if arguments.resume:
        take_up = partial(Run.resume, arguments.resume, arguments.steps, ranks, arguments.env)
        return alone(arguments.resume, take_up, holds=is_first())
    plan = plan_from(arguments)
    folder = arguments.folder or arguments.runs / run_name(plan)
    return alone(folder, partial(begun, plan, folder, ranks), holds=is_first())


def begun(plan: OurPlan, folder: Path, ranks: Ranks) -> Run[Any]:
    """Begin a run; raise Refused, with the reason, if its folder is taken."""
    if is_first() and folder.exists():
        raise Refused(why_taken(folder, plan))
    return Run.begin(plan, folder, ranks)


def execute(run: Run[Any], signals: Signals, ranks: Ranks) -> int:
    """Train the run to its end or say why it ended early; return the exit code."""
    if run.is_complete:
        tell(f"{run.folder} is complete: {summary(run)}")
        return 0
    try:
        with closing(Bar(run)) as bar:
            run.train(signals, watch=bar)
    except Stopped:
        tell(f"stopped at {run.steps} steps; go on with: {resume_command(run)}")
        return 128 + (signals.received or signal.SIGTERM)  # it may have come to another rank
    except OSError as error:
        return refuse("geonpg train", f"{run.folder} ended at {run.steps} steps: {named(run.folder, error)}")
    except BrokenEnvironment as error:
        return refuse(
            "geonpg train", f"{run.folder} ended at {run.steps} steps: {error}; {how_to_go_on(run)}", error.frames
        )
    except RuntimeError as error:
        if ranks.size == 1:
            raise
        lost = f"{run.folder} lost one of its {ranks.size} processes at {run.steps} steps ({first_line(error)})"
        return refuse("geonpg train", f"{lost}; go on with: {resume_command(run)}")
    tell(f"{run.folder}: {summary(run)}")
    return 0


def resume_command(run: Run[Any]) -> str:
    """Return the command that resumes a run with as many processes."""
    size = run.ranks.size
    command = ["geonpg", "train"] if size == 1 else ["torchrun", "--nproc-per-node", str(size), "scripts/train.py"]
    return shlex.join([*command, "--resume", str(run.folder), *env_arguments(run.plan.env_id)])


def how_to_go_on(run: Run[Any]) -> str:
    """Say from which step the run resumes, and by which command."""
    saved = run.checkpoints.paths()
    return f"go on from step {step_of(saved[-1]) if saved else 0} with: {resume_command(run)}"


def tell(text: str) -> None:
    """Print on rank 0 only."""
    if is_first():
        print(text)


def first_line(error: Exception) -> str:
    """Return the first line of an exception's message."""
    return str(error).split("\n", 1)[0]


def summary(run: Run[Any]) -> str:
    """Describe the last evaluation and, if the run left a model, what to do with it."""
    last = run.history.evaluations[-1]
    found = f"{last.mean:.1f} ± {last.std:.1f} over {len(last.returns)} deterministic episodes after {last.steps} steps"
    return found if run.plan.only_tables else f"{found}\n{next_commands(run.folder, run.plan.env_id)}"


def train(arguments: Namespace) -> int:
    """Train the run that the arguments name; return the exit code."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        heard = listening(AFTER_UPDATE if is_first() else "")
        with heard as signals, quiet_threads(), joined() as ranks, prepared(arguments, ranks) as run:
            return execute(run, signals, ranks)
    except BrokenEnvironment as error:  # at its first reset
        return refuse("geonpg train", error, error.frames)
    except (Refused, OSError) as error:
        return refuse("geonpg train", error) if is_first() else 2  # the others found the same

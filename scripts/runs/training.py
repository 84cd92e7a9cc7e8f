"""What `geonpg train` does with its arguments: a run, its progress bar, and how it ends."""

from geonpg.errors import Refused
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
from geonpg.finite import BrokenEnvironment
from geonpg.configs import load, parse_overrides
from geonpg.kfac import Ranks
from geonpg.files import named
from geonpg.scripts.runs.bar import Bar
from geonpg.scripts.runs.building import check_actions
from geonpg.scripts.runs.naming import next_commands, run_name, why_taken
from geonpg.scripts.runs.process import is_first, joined
from geonpg.scripts.common.locks import alone
from geonpg.scripts.runs.plan import Plan
from geonpg.scripts.runs.folder import Stopped, naming
from geonpg.scripts.runs.run import Run, begin, resume
from geonpg.scripts.common.stopping import AFTER_UPDATE, Signals, listening


def overrides_from(arguments: Namespace) -> dict[str, Any]:
    """The settings that the command line gives."""
    given = {"method": arguments.method, "steps": arguments.steps, "n_envs": arguments.n_envs}
    return parse_overrides(arguments.set) | {key: value for key, value in given.items() if value is not None}


def plan_from(arguments: Namespace) -> Plan:
    overrides = overrides_from(arguments)
    settings = load(arguments.preset, arguments.env, overrides)
    check_device(arguments.device)
    check_actions(arguments.env, overrides)
    return Plan(arguments.env, arguments.seed, settings, arguments.preset, arguments.device)


def check_device(name: str) -> None:
    legal = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if name not in legal:
        raise Refused(f"device {name!r} is not here: choose one of {', '.join(legal)}")


@contextmanager
def quiet_threads() -> Iterator[None]:
    """What TensorBoard's thread cannot write it raises twice, there and here: here is enough."""
    before = threading.excepthook
    threading.excepthook = lambda failure: None if isinstance(failure.exc_value, OSError) else before(failure)
    try:
        yield
    finally:
        threading.excepthook = before


def prepared(arguments: Namespace, ranks: Ranks) -> AbstractContextManager[Run]:
    """The run that was asked for, new or gone on with, ready to train, with its folder locked."""
    if arguments.resume:
        return alone(arguments.resume, partial(resumed, arguments, ranks), holds=is_first())
    plan = plan_from(arguments)
    folder = arguments.folder or arguments.runs / run_name(plan)
    return alone(folder, partial(begun, plan, folder, ranks), holds=is_first())


def begun(plan: Plan, folder: Path, ranks: Ranks) -> Run:
    if is_first() and folder.exists():
        raise Refused(why_taken(folder, plan))
    return begin(plan, folder, ranks)


def resumed(arguments: Namespace, ranks: Ranks) -> Run:
    run = resume(arguments.resume, arguments.steps, ranks, arguments.env)
    if not run.exact:
        logging.warning("these environments cannot be restored: they begin new episodes")
    return run


def execute(run: Run, signals: Signals, ranks: Ranks) -> int:
    if run.is_complete:
        tell(f"{run.folder} is complete: {summary(run)}\n{next_commands(run.folder, run.plan.env_id)}")
        return 0
    try:
        with closing(Bar(run)) as bar:
            run.train(watch=bar, stop=signals)
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
    tell(f"{run.folder}: {summary(run)}\n{next_commands(run.folder, run.plan.env_id)}")
    return 0


def again(run: Run) -> str:
    """The command that goes on with a run, with as many processes."""
    size = run.ranks.size
    command = ["geonpg", "train"] if size == 1 else ["torchrun", "--nproc-per-node", str(size), "scripts/train.py"]
    return shlex.join([*command, "--resume", str(run.folder), *naming(run.plan.env_id)])


def how_to_go_on(run: Run) -> str:
    saved = run.checkpoints.paths()
    return f"go on from step {step_of(saved[-1]) if saved else 0} with: {again(run)}"


def tell(text: str) -> None:
    if is_first():
        print(text)


def first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def failed(reason: str, frames: str = "") -> int:
    print(f"{frames}geonpg train: {reason}", file=sys.stderr)
    return 2


def summary(run: Run) -> str:
    steps, mean, std, returns = run.evaluations[-1]
    return f"{mean:.1f} ± {std:.1f} over {len(returns)} deterministic episodes after {steps} steps"


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

"""What `geonpg train` does with its arguments: a run, its progress bar, and how it ends."""

import logging
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch
from tqdm import tqdm

from geonpg.agents.collector import BrokenEnvironment
from geonpg.configs import load, parse_overrides
from geonpg.kfac import Ranks
from geonpg.scripts.building import check_actions
from geonpg.scripts.launched import is_first, joined
from geonpg.scripts.records import Stopped, naming
from geonpg.scripts.run import Plan, Run, begin, resume
from geonpg.scripts.stopping import Signals, listening


def plan_from(arguments: Namespace) -> Plan:
    given = {"method": arguments.method, "steps": arguments.steps, "n_envs": arguments.n_envs}
    overrides: dict[str, Any] = parse_overrides(arguments.set)
    overrides |= {key: value for key, value in given.items() if value is not None}
    settings = load(arguments.preset, arguments.env, overrides)
    check_device(arguments.device)
    check_actions(arguments.env, overrides)
    return Plan(arguments.env, arguments.seed, settings, arguments.preset, arguments.device)


def check_device(name: str) -> None:
    legal = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if name not in legal:
        raise ValueError(f"device {name!r} is not here: choose one of {', '.join(legal)}")


class Bar:
    """Progress with return, KL and time left."""

    def __init__(self, run: Run) -> None:
        total = run.plan.settings.steps
        self.bar = tqdm(
            total=total, initial=run.steps, unit=" steps", unit_scale=True, desc=run.plan.name, disable=not is_first()
        )

    def __call__(self, run: Run) -> None:
        episodes = run.agent.ep_info_buffer
        mean = f"{sum(e['r'] for e in episodes) / len(episodes):.1f}" if episodes else "-"
        kl = run.agent.optimizer.report.actual_kl
        self.bar.set_postfix_str(f"return {mean}, KL {kl:.4f}", refresh=False)
        self.bar.update(min(run.steps, self.bar.total) - self.bar.n)

    def close(self) -> None:
        self.bar.close()


@contextmanager
def quiet_threads() -> Iterator[None]:
    """What TensorBoard's thread cannot write it raises twice, there and here: here is enough."""
    before = threading.excepthook
    threading.excepthook = lambda failure: None if isinstance(failure.exc_value, OSError) else before(failure)
    try:
        yield
    finally:
        threading.excepthook = before


def prepared(arguments: Namespace, ranks: Ranks) -> Run:
    """The run that was asked for, new or gone on with, ready to train."""
    if not arguments.resume:
        plan = plan_from(arguments)
        return begin(plan, arguments.folder or arguments.runs / plan.name, ranks)
    run = resume(arguments.resume, arguments.steps, ranks, arguments.env)
    if not run.exact:
        logging.warning("these environments cannot be restored: they begin new episodes")
    return run


def execute(arguments: Namespace, signals: Signals, ranks: Ranks) -> int:
    run = prepared(arguments, ranks)
    if run.is_complete:
        tell(f"{run.folder} is complete: {summary(run)}")
        return 0
    try:
        with closing(Bar(run)) as bar:
            run.train(watch=bar, stop=signals)
    except Stopped:
        tell(f"stopped at {run.steps} steps; go on with: {again(run)}")
        return 128 + (signals.received or signal.SIGTERM)  # it may have come to another rank
    except (OSError, BrokenEnvironment) as error:
        return failed(f"{run.folder} ended at {run.steps} steps: {error}")
    except RuntimeError as error:
        if ranks.size == 1:
            raise
        lost = f"{run.folder} lost one of its {ranks.size} processes at {run.steps} steps ({first_line(error)})"
        return failed(f"{lost}; go on with: {again(run)}")
    tell(f"{run.folder}: {summary(run)}")
    return 0


def again(run: Run) -> str:
    """The command that goes on with the run, with as many processes."""
    many = run.ranks.size
    program = "geonpg train" if many == 1 else f"torchrun --nproc-per-node {many} scripts/train.py"
    return " ".join([program, "--resume", str(run.folder), *naming(run.plan.env_id)])


def tell(text: str) -> None:
    if is_first():
        print(text)


def first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]


def failed(reason: str) -> int:
    print(f"geonpg train: {reason}", file=sys.stderr)
    return 2


def summary(run: Run) -> str:
    steps, mean, std, returns = run.evaluations[-1]
    return f"{mean:.1f} ± {std:.1f} over {len(returns)} deterministic episodes after {steps} steps"


def train(arguments: Namespace) -> int:
    """Train the run that the arguments name; the command's exit code."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        with listening() as signals, quiet_threads(), joined() as ranks:
            return execute(arguments, signals, ranks)
    except (ValueError, OSError) as error:
        return failed(str(error)) if is_first() else 2  # the others found the same

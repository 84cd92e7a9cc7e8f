"""Train an agent in one run folder: `geonpg train --env Walker2d-v4 --method geo`."""

import logging
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from tqdm import tqdm

from geonpg.agents.checkpoint import CheckpointError
from geonpg.agents.collector import BrokenEnvironment
from geonpg.configs import load, names, parse_overrides
from geonpg.scripts.cli import Parser
from geonpg.scripts.run import Plan, Run, Stopped, begin, resume


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser("geonpg train", description=__doc__)
    parser.add_argument("--env", metavar="ID", help="environment, Walker2d-v4 for example")
    parser.add_argument("--method", help="update rule: ng, mid, geo or geof (default: the preset's)")
    parser.add_argument("--preset", default="default", help=f"{', '.join(names())}, or a .toml file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="`geonpg configs` lists the keys"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="environment steps in all")
    parser.add_argument("--n-envs", type=int, help="environments side by side")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders go (default: runs)")
    parser.add_argument("--folder", type=Path, help="this run's folder (default: named after the run, in --runs)")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with a run, bit for bit")
    arguments = parser.parse_args(argv)
    if (arguments.env is None) == (arguments.resume is None):
        parser.error("name an environment by --env, or a run to go on with by --resume")
    if arguments.seed < 0:
        parser.error(f"--seed must not be negative, not {arguments.seed}")
    return arguments


def plan_from(arguments: Namespace) -> Plan:
    given = {"method": arguments.method, "steps": arguments.steps, "n_envs": arguments.n_envs}
    overrides: dict[str, Any] = parse_overrides(arguments.set)
    overrides |= {key: value for key, value in given.items() if value is not None}
    settings = load(arguments.preset, arguments.env, overrides)
    check_device(arguments.device)
    return Plan(arguments.env, arguments.seed, settings, arguments.preset, arguments.device)


def check_device(name: str) -> None:
    legal = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    if name not in legal:
        raise ValueError(f"device {name!r} is not here: choose one of {', '.join(legal)}")


class Bar:
    """Progress with return, KL and time left."""

    def __init__(self, run: Run) -> None:
        total = run.plan.settings.steps
        self.bar = tqdm(total=total, initial=run.steps, unit=" steps", unit_scale=True, desc=run.plan.name)

    def __call__(self, run: Run) -> None:
        episodes = run.agent.ep_info_buffer
        mean = f"{sum(e['r'] for e in episodes) / len(episodes):.1f}" if episodes else "-"
        kl = run.agent.optimizer.report.actual_kl
        self.bar.set_postfix_str(f"return {mean}, KL {kl:.4f}", refresh=False)
        self.bar.update(min(run.steps, self.bar.total) - self.bar.n)


class Signals:
    """The first SIGINT or SIGTERM asks the run to stop after its update; another one ends it at once."""

    def __init__(self) -> None:
        self.received = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        return self.received > 0


def execute(arguments: Namespace) -> int:
    if arguments.resume:
        run = resume(arguments.resume, arguments.steps)
        if not run.exact:
            logging.warning("these environments cannot be restored: they begin new episodes")
    else:
        plan = plan_from(arguments)
        run = begin(plan, arguments.folder or arguments.runs / plan.name)
    if run.is_complete:
        print(f"{run.folder} is complete: {summary(run)}")
        return 0
    signals, bar = Signals(), Bar(run)
    try:
        run.train(watch=bar, stop=signals)
    except Stopped:
        bar.bar.close()
        print(f"stopped at {run.steps} steps; go on with: geonpg train --resume {run.folder}")
        return 128 + signals.received
    bar.bar.close()
    print(f"{run.folder}: {summary(run)}")
    return 0


def summary(run: Run) -> str:
    steps, mean, std, returns = run.evaluations[-1]
    return f"{mean:.1f} ± {std:.1f} over {len(returns)} deterministic episodes after {steps} steps"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        return execute(arguments)
    except (ValueError, OSError, BrokenEnvironment, CheckpointError) as error:
        print(f"geonpg train: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

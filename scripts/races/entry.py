"""One entry of a race, a contestant on a task with a seed, in a process of its own; `geonpg race` starts it."""

import gc
import os
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geonpg.errors import Refused
from geonpg.finite import BrokenEnvironment
from geonpg.scripts.common.parser import Parser, refuse, seed
from geonpg.scripts.races.clock import Clock, Referee, Trained, minutes_of
from geonpg.scripts.races.contestants import config_of, versions_of
from geonpg.scripts.races.racers import Racer, racer_of
from geonpg.scripts.races.rltools_process import NotStarted
from geonpg.scripts.races.rows import begin, is_done, machine, write_facts, write_rows
from geonpg.scripts.runs.evaluation import evaluate_policy
from geonpg.scripts.runs.facts import git_revision, versions
from geonpg.scripts.runs.process import keep_memory

EPISODES = 20  # of an evaluation


def parse(argv: Sequence[str] | None) -> Namespace:
    """Parse the command line."""
    parser = Parser("geonpg.scripts.races.entry", description=__doc__)
    parser.add_argument("--env", metavar="ID", required=True)
    parser.add_argument("--contestant", required=True)
    parser.add_argument("--seed", type=seed, required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    return parser.parse_args(argv)


def others_seconds(racer: Racer) -> float | None:
    """Return the CPU seconds that other programs have used since the machine started; None where that is not known."""
    try:
        user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    except (OSError, ValueError):
        return None
    everyone = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return everyone - time.process_time() - racer.elsewhere


def facts_of(arguments: Namespace, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return what race.json holds; `chosen` is what the warm-up has chosen."""
    return {
        "env": arguments.env,
        "contestant": arguments.contestant,
        "seed": arguments.seed,
        "minutes": arguments.minutes,
        "config": config_of(arguments.contestant, arguments.env),
        **chosen,
        "machine": machine(),
        "versions": {**versions(), **versions_of(arguments.contestant)},
        "git": git_revision(),
    }


def evaluate(env_id: str, seed: int, trained: Trained) -> NDArray[np.float64]:
    """Play deterministic episodes on the seed's own initial states; return their returns."""
    like = trained.normalization
    return evaluate_policy(trained.policy, trained.settings, env_id, EPISODES, like, seed)[0]


def race(arguments: Namespace) -> None:
    """Warm up, then train by the clock."""
    keep_memory()
    racer = racer_of(arguments.contestant, arguments.env, arguments.seed)
    facts = facts_of(arguments, racer.warm_up())
    begin(arguments.folder, facts)
    gc.collect()  # what the warm-up has left
    record = partial(write_rows, arguments.folder)
    judge = partial(evaluate, arguments.env, arguments.seed)
    before, began = others_seconds(racer), time.monotonic()
    racer.train(Referee(minutes_of(arguments.minutes), Clock(), judge, record).left)
    if before is not None and (now := others_seconds(racer)) is not None:
        write_facts(arguments.folder, {**facts, "others": (now - before) / (time.monotonic() - began)})


def main(argv: Sequence[str] | None = None) -> int:
    """Race; return the exit code."""
    arguments = parse(argv)
    try:
        if not is_done(arguments.folder):  # it may have been, and its process have crashed after that
            race(arguments)
    except (Refused, OSError, BrokenEnvironment, NotStarted) as error:
        return refuse("geonpg.scripts.races.entry", error, getattr(error, "frames", ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())

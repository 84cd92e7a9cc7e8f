"""What `geonpg solve` does: a run for each task and seed, and a table of when it was solved."""

import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from geonpg.configs import load
from geonpg.errors import require
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.locks import alone
from geonpg.scripts.common.stopping import AFTER_UPDATE, listening
from geonpg.scripts.jobs.job import recorded_config
from geonpg.scripts.runs.folder import Stopped, first_difference
from geonpg.scripts.runs.plan import Plan, config_of
from geonpg.scripts.runs.run import Run, begin, resume

SEEDS = (0, 1, 2)
EVAL_EVERY = 10_000


@dataclass(frozen=True)
class Goal:
    env_id: str
    wanted: float
    steps: int


GOALS = (Goal("InvertedPendulum-v4", 950, 200_000), Goal("CartPole-v1", 500, 100_000))


def plan_of(goal: Goal, seed: int) -> Plan:
    settings = load("default", goal.env_id, {"steps": goal.steps, "eval_every": EVAL_EVERY, "eval_episodes": 20})
    return Plan(goal.env_id, seed, settings)


def run_of(plan: Plan, folder: Path) -> Run:
    if not folder.exists():
        return begin(plan, folder)
    difference = first_difference(recorded_config(folder), tomllib.loads(config_of(plan)))
    require(not difference, f"{folder} was made with other settings, {difference}: choose other --runs")
    return resume(folder, env_id=plan.env_id)


def row(goal: Goal, run: Run) -> list[str | int | float]:
    """Environment, seed, what is wanted, when it was first reached, and the evaluation at the end."""
    reached = [steps for steps, mean, *_ in run.evaluations if mean >= goal.wanted]
    return [goal.env_id, run.plan.seed, goal.wanted, reached[0] if reached else "not", round(run.evaluations[-1][1])]


def advance(bar: "tqdm[Any]", done: int, run: Run) -> None:
    bar.update(done + min(run.steps, run.plan.settings.steps) - bar.n)


def solved(runs: Path, stop: Callable[[], bool]) -> list[list[str | int | float]]:
    rows = []
    with tqdm(total=len(SEEDS) * sum(goal.steps for goal in GOALS), unit=" steps", unit_scale=True) as bar:
        for goal in GOALS:
            for seed in SEEDS:
                plan, done = plan_of(goal, seed), bar.n
                bar.set_description(f"{goal.env_id}, seed {seed}")
                with alone(runs / plan.name, partial(run_of, plan, runs / plan.name)) as run:
                    if not run.is_complete:
                        run.train(partial(advance, bar, done), stop)
                bar.update(done + goal.steps - bar.n)
                rows.append(row(goal, run))
    return rows


def solve(runs: Path) -> int:
    """Solve every task from every seed; the command's exit code."""
    with listening(AFTER_UPDATE) as signals:
        try:
            rows = solved(runs, signals)
        except Stopped:
            print("stopped: the same command goes on", file=sys.stderr)
            return 128 + signals.received
    columns = ("environment", "seed", "wanted", "reached at step", "return at the end")
    print(Table("solve", "The default preset, 20 deterministic episodes every 10,000 steps", columns, rows).markdown())
    return 0 if all(r[3] != "not" for r in rows) else 1

"""`geonpg solve`: one run per task and seed, and a table of the steps it took."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from geonpg.configs import load
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.locks import alone
from geonpg.scripts.common.stopping import AFTER_UPDATE, Stopped, listening
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.run import Run

SEEDS = (0, 1, 2)
EVAL_EVERY = 10_000


@dataclass(frozen=True)
class Goal:
    """A return to reach on a task within so many steps."""

    env_id: str
    wanted: float
    steps: int


GOALS = (Goal("InvertedPendulum-v4", 950, 200_000), Goal("CartPole-v1", 500, 100_000))


def plan_for(goal: Goal, seed: int) -> OurPlan:
    """Make the plan of the run for a goal and a seed."""
    settings = load("default", goal.env_id, {"steps": goal.steps, "eval_every": EVAL_EVERY, "eval_episodes": 20})
    return OurPlan(goal.env_id, seed, settings)


def row(goal: Goal, run: Run[Any]) -> list[str | int | float]:
    """Make a row of the table: environment, seed, wanted return, step at which it was reached, and final return."""
    evaluations = run.history.evaluations
    reached = next((each.steps for each in evaluations if each.mean >= goal.wanted), "not")
    return [goal.env_id, run.plan.seed, goal.wanted, reached, round(evaluations[-1].mean)]


def advance(bar: "tqdm[Any]", done: int, run: Run[Any]) -> None:
    """Move the bar to the run's steps, after `done` steps of the runs before it."""
    bar.update(done + min(run.steps, run.plan.settings.steps) - bar.n)


def solved(runs: Path, stop: Callable[[], bool]) -> list[list[str | int | float]]:
    """Train every goal from every seed; return the rows of the table."""
    rows = []
    with tqdm(total=len(SEEDS) * sum(goal.steps for goal in GOALS), unit=" steps", unit_scale=True) as bar:
        for goal in GOALS:
            for seed in SEEDS:
                plan, done = plan_for(goal, seed), bar.n
                bar.set_description(f"{goal.env_id}, seed {seed}")
                with alone(
                    runs / plan.name, partial(Run.begin_or_resume, plan, runs / plan.name, "choose other --runs")
                ) as run:
                    if not run.is_complete:
                        run.train(stop, watch=partial(advance, bar, done))
                bar.update(done + goal.steps - bar.n)
                rows.append(row(goal, run))
    return rows


def solve(runs: Path) -> int:
    """Solve every task from every seed and print a table; return the exit code."""
    with listening(AFTER_UPDATE) as signals:
        try:
            rows = solved(runs, signals)
        except Stopped:
            print("stopped: the same command goes on", file=sys.stderr)
            return 128 + signals.received
    columns = ("environment", "seed", "wanted", "reached at step", "return at the end")
    print(Table("solve", "The default preset, 20 deterministic episodes every 10,000 steps", columns, rows).markdown())
    return 0 if all(r[3] != "not" for r in rows) else 1

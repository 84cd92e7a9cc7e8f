"""What `geonpg compare` does with its arguments: the queue of runs, and what is said of it."""

import logging
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from geonpg.errors import Refused
from geonpg.scripts.common.locks import locked
from geonpg.scripts.common.stopping import Signals, listening
from geonpg.scripts.jobs.job import Job, check_recorded
from geonpg.scripts.jobs.matrix import Group, groups_from, jobs_of, read
from geonpg.scripts.jobs.progress import Board, Display
from geonpg.scripts.jobs.queue_local import LOCK_SECONDS, Runner, Task
from geonpg.scripts.jobs.queue_ray import ClusterTask, RayRunner
from geonpg.scripts.runs.folder import compact, finish

POLL_SECONDS = 0.1


def groups_of(arguments: Namespace) -> list[Group]:
    if arguments.study:
        return read(arguments.study)
    what, where = (arguments.methods, arguments.baselines), (arguments.envs, arguments.seeds)
    return groups_from(*what, *where, arguments.steps, arguments.preset)


@dataclass
class Concluding:
    """What follows when a run has ended well; `dropped` counts those of which only results are kept."""

    compacting: bool
    dropped: int = 0

    def after(self, folder: Path) -> Callable[[], None]:
        """A run that had ended before this command was given keeps its models."""
        return partial(self.conclude, folder, self.compacting and not (folder / "final.ckpt").exists())

    def conclude(self, folder: Path, compacting: bool) -> None:
        finish(folder)  # first, so that a kill in here costs nothing
        if compacting:
            compact(folder)
            self.dropped += 1


def task_of(job: Job, root: Path, concluding: Concluding) -> Task:
    folder = root / job.name

    def command() -> list[str]:
        return [sys.executable, "-m", "geonpg.scripts.jobs.worker", *job.order(folder)]

    return Task(job.name, command, concluding.after(folder))


def runner_of(
    arguments: Namespace, jobs: Sequence[Job], concluding: Concluding, lock: int | None
) -> Runner | RayRunner:
    """For these jobs, on this machine or on a cluster."""
    root = arguments.results
    if arguments.cluster is None:
        return Runner([task_of(job, root, concluding) for job in jobs], arguments.jobs, lock)
    tasks = [ClusterTask(job, root / job.name, concluding.after(root / job.name)) for job in jobs]
    return RayRunner(tasks, arguments.cluster, arguments.cpus)


def work(runner: Runner | RayRunner, board: Board, signals: Signals) -> None:
    """Until nothing is left to do, or a signal comes."""
    display = Display(sys.stderr)
    try:
        while runner.is_busy and not signals():
            before = set(runner.running)
            runner.advance()
            if display.is_due or before != set(runner.running):
                board.look(before | set(runner.running))
                display.show(board.lines(runner.running, runner.failed, runner.slots))
            time.sleep(POLL_SECONDS)
        if signals():
            print("stopping: the runs save their state", file=sys.stderr, flush=True)
    finally:
        runner.stop()


def execute(arguments: Namespace, jobs: Sequence[Job], signals: Signals) -> tuple[Board, Runner | RayRunner]:
    root = arguments.results
    root.mkdir(parents=True, exist_ok=True)
    with locked(root, LOCK_SECONDS) as lock:
        for job in jobs:
            check_recorded(job, root / job.name)
        return carry_out(arguments, jobs, signals, lock)


def carry_out(
    arguments: Namespace, jobs: Sequence[Job], signals: Signals, lock: int | None = None
) -> tuple[Board, Runner | RayRunner]:
    """Make those of the runs that are not done yet."""
    board, concluding = Board(jobs, arguments.results), Concluding(arguments.compact)
    runner = runner_of(arguments, [job for job in jobs if job.name not in board.done], concluding, lock)
    work(runner, board, signals)
    if concluding.dropped:
        what = f"models and checkpoints of {concluding.dropped} runs that have ended"
        print(f"dropped the {what}; --no-compact keeps them", file=sys.stderr)
    return board, runner


def compare(arguments: Namespace, given: Sequence[str]) -> int:
    """Make the runs that the arguments name; the command's exit code. `given`: the command line, to be repeated."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        with listening() as signals:
            threads = {"env_threads": 1} if arguments.jobs > 1 or arguments.cluster is not None else {}
            jobs = jobs_of(groups_of(arguments), threads, arguments.envs.split(","))
            board, runner = execute(arguments, jobs, signals)
    except (Refused, OSError) as error:
        print(f"geonpg compare: {error}", file=sys.stderr)
        return 2
    return told(board, runner, signals, shlex.join(["geonpg", "compare", *given]))


def told(board: Board, runner: Runner | RayRunner, signals: Signals, command: str) -> int:
    """Say how far the runs have come, and how to go on if they were stopped; the exit code."""
    counted = f"{len(board.done)} of {len(board.jobs)} runs are done in {board.root}"
    if signals():
        print(f"stopped: {counted}; go on with: {command}")
        return 128 + signals.received
    print(counted)
    for name, reason in runner.failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    return 1 if runner.failed else 0

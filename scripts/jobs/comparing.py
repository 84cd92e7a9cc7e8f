"""`geonpg compare` after its arguments are parsed: the queue of runs, and messages about it."""

import logging
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from geonpg.errors import Refused
from geonpg.scripts.common.locks import locked
from geonpg.scripts.common.parser import refuse
from geonpg.scripts.common.stopping import Signals, listening
from geonpg.scripts.jobs.child import worker_command
from geonpg.scripts.jobs.job import Job, check_recorded
from geonpg.scripts.jobs.matrix import Group, groups_from, jobs_of, read_groups
from geonpg.scripts.jobs.progress import Board, Display
from geonpg.scripts.jobs.queue import LOCK_SECONDS, Queue
from geonpg.scripts.jobs.queue_local import LocalItem, LocalQueue
from geonpg.scripts.jobs.queue_ray import ClusterItem, RayQueue
from geonpg.scripts.runs.folder import FINAL, compact, finish

Jobs = Queue[Any, Any]


def groups_of(arguments: Namespace) -> list[Group]:
    """Read the groups of the study file, or make them from the flags."""
    if arguments.study:
        return read_groups(arguments.study)
    what, where = (arguments.methods, arguments.baselines), (arguments.envs, arguments.seeds)
    return groups_from(*what, *where, arguments.steps, arguments.preset)


@dataclass
class Concluding:
    """What happens when a run succeeds.

    compacting: whether models and checkpoints are deleted; `dropped` counts the runs that lost theirs.
    """

    compacting: bool
    dropped: int = 0

    def after(self, folder: Path) -> Callable[[], None]:
        """Return the function to call when the run in a folder succeeds; one that had ended before keeps its models."""
        return partial(self.conclude, folder, self.compacting and not (folder / FINAL).exists())

    def conclude(self, folder: Path, compacting: bool) -> None:
        """Mark the run as complete and delete its models if wished; raise AtWork if another process has resumed it."""
        with locked(folder):
            finish(folder)  # first, so that a kill in here costs nothing
            if compacting:
                compact(folder)
                self.dropped += 1


def local_item(job: Job, root: Path, concluding: Concluding) -> LocalItem:
    """Make the item of a job for the queue on this machine."""
    folder = root / job.name
    return LocalItem(job.name, lambda: worker_command(*job.order(folder)), concluding.after(folder))


def queue_of(arguments: Namespace, jobs: Sequence[Job], concluding: Concluding, lock: int | None) -> Jobs:
    """Make the queue of these jobs, on this machine or on a cluster."""
    root = arguments.results
    if arguments.cluster is None:
        return LocalQueue([local_item(job, root, concluding) for job in jobs], arguments.jobs, lock)
    items = [ClusterItem(job, root / job.name, concluding.after(root / job.name)) for job in jobs]
    return RayQueue(items, arguments.cluster, arguments.cpus)


def work_off(queue: Jobs, board: Board, signals: Signals) -> None:
    """Work until nothing is left or a signal comes, and display the progress."""
    display, shown = Display(sys.stderr), set[str]()

    def look() -> None:
        nonlocal shown
        running = set(queue.running)
        if display.is_due or running != shown:
            board.look(running | shown)
            display.show(board.lines(queue.running, queue.failed, queue.slots))
            shown = running

    def stop() -> bool:
        if signals():
            print("stopping: the runs save their state", file=sys.stderr, flush=True)
        return signals()

    queue.work(stop, look)


def make_study(arguments: Namespace, jobs: Sequence[Job], signals: Signals) -> tuple[Board, Jobs]:
    """Make the runs of a study; raise Refused if one of their folders holds another run."""
    root = arguments.results
    root.mkdir(parents=True, exist_ok=True)
    with locked(root, LOCK_SECONDS) as lock:
        for job in jobs:
            check_recorded(job, root / job.name)
        return make_runs(arguments, jobs, signals, lock)


def make_runs(
    arguments: Namespace, jobs: Sequence[Job], signals: Signals, lock: int | None = None
) -> tuple[Board, Jobs]:
    """Make the runs that are not done yet."""
    board, concluding = Board(jobs, arguments.results), Concluding(arguments.compact)
    queue = queue_of(arguments, [job for job in jobs if job.name not in board.done], concluding, lock)
    work_off(queue, board, signals)
    if concluding.dropped:
        what = f"models and checkpoints of {concluding.dropped} runs that have ended"
        print(f"dropped the {what}; --no-compact keeps them", file=sys.stderr)
    return board, queue


def compare(arguments: Namespace, given: Sequence[str]) -> int:
    """Make the runs that the arguments name; return the exit code. `given` is the command line, to be repeated."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        with listening() as signals:
            threads = {"env_threads": 1} if arguments.jobs > 1 or arguments.cluster is not None else {}
            jobs = jobs_of(groups_of(arguments), threads, arguments.envs.split(","))
            board, queue = make_study(arguments, jobs, signals)
    except (Refused, OSError) as error:
        return refuse("geonpg compare", error)
    return print_outcome(board, queue, signals, shlex.join(["geonpg", "compare", *given]))


def print_outcome(board: Board, queue: Jobs, signals: Signals, command: str) -> int:
    """Print how far the runs have come, and how to resume them if they were stopped; return the exit code."""
    counted = f"{len(board.done)} of {len(board.jobs)} runs are done in {board.root}"
    if signals():
        print(f"stopped: {counted}; go on with: {command}")
        return 128 + signals.received
    print(counted)
    for name, reason in queue.failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    return 1 if queue.failed else 0

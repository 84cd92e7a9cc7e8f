"""Methods x environments x seeds, ours and SB3's, as a queue: `geonpg compare STUDY.toml`.

One folder per run. Finished runs are never repeated, interrupted ones go on where they were, failed ones are tried
again once and then reported. A study file has tables [[group]] with methods or algorithm, envs, seeds and steps.
"""

import logging
import os
import shlex
import sys
import time
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from geonpg.configs import names
from geonpg.scripts.cli import Parser
from geonpg.scripts.cluster import ClusterTask, RayRunner
from geonpg.scripts.jobs import Job, check_recorded, compact, finish, is_done
from geonpg.scripts.matrix import Group, groups_from, jobs_of, read
from geonpg.scripts.progress import Board, Display
from geonpg.scripts.runner import Runner, Task, locked
from geonpg.scripts.stopping import Signals, listening

POLL_SECONDS = 0.1
FLAGS = ("methods", "envs", "seeds", "steps", "preset", "baselines")


def parse(argv: Sequence[str]) -> Namespace:
    parser = Parser("geonpg compare", description=__doc__)
    parser.add_argument("study", type=Path, nargs="?", metavar="STUDY.toml", help="or the flags that follow")
    parser.add_argument("--methods", default="", help="ours, geo,ng for example")
    parser.add_argument("--baselines", default="", help="ppo, a2c, trpo; ppo:zoo for rl-zoo3's tuned settings")
    parser.add_argument("--envs", default="", help="HalfCheetah-v4,Walker2d-v4 for example")
    parser.add_argument("--seeds", default="0-4", help="0-4 or 0,2,5 (default: 0-4)")
    parser.add_argument("--steps", type=int, help="environment steps of each run (default: the preset's)")
    parser.add_argument("--preset", default="default", help=f"of our methods: {', '.join(names())}, or a .toml file")
    parser.add_argument("--results", type=Path, default=Path("results/study"), help="where runs go (%(default)s)")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, help=f"runs at a time on this machine (default: its cores, {cores})")
    parser.add_argument(
        "--cluster", nargs="?", const="", metavar="ADDRESS", help="on a Ray cluster, or on Ray started here"
    )
    parser.add_argument("--cpus", type=float, help="of a run on a cluster (default: 1)")
    parser.add_argument(
        "--compact", action=BooleanOptionalAction, default=True, help="drop models and checkpoints of finished runs"
    )
    arguments = parser.parse_args(argv)
    given = [name for name in FLAGS if getattr(arguments, name) != parser.get_default(name)]
    if arguments.study and given:
        parser.error(f"the study file says what is run: it takes no --{given[0]} beside it")
    if not arguments.study and not (arguments.envs and (arguments.methods or arguments.baselines)):
        parser.error("name a study file, or --envs with --methods or --baselines")
    if arguments.cluster is not None and arguments.jobs is not None:
        parser.error("--jobs is for this machine: on a --cluster, as many run as have their --cpus there")
    if arguments.cluster is None and arguments.cpus is not None:
        parser.error("--cpus goes with --cluster; on this machine, --jobs says how many run at a time")
    arguments.jobs = cores if arguments.jobs is None else arguments.jobs
    arguments.cpus = 1.0 if arguments.cpus is None else arguments.cpus
    if arguments.jobs < 1:
        parser.error(f"--jobs must be at least 1, not {arguments.jobs}")
    if arguments.cpus <= 0:
        parser.error(f"--cpus must be above 0, not {arguments.cpus:g}")
    return arguments


def groups_of(arguments: Namespace) -> list[Group]:
    if arguments.study:
        return read(arguments.study)
    return groups_from(**{name: getattr(arguments, name) for name in FLAGS})


def task_of(job: Job, root: Path, compacting: bool) -> Task:
    folder = root / job.name

    def command() -> list[str]:
        return [sys.executable, "-m", "geonpg.scripts.worker", *job.order(folder)]

    return Task(job.name, command, partial(conclude, folder, compacting))


def conclude(folder: Path, compacting: bool) -> None:
    """A run has ended well. First that is said, so that a kill in here costs nothing."""
    if not is_done(folder):
        finish(folder)
    if compacting:
        compact(folder)


def runner_of(arguments: Namespace, jobs: Sequence[Job], lock: int) -> Runner | RayRunner:
    """For these jobs, on this machine or on a cluster."""
    root = arguments.results
    if arguments.cluster is None:
        return Runner([task_of(job, root, arguments.compact) for job in jobs], arguments.jobs, lock)
    tasks = [ClusterTask(job, root / job.name, partial(conclude, root / job.name, arguments.compact)) for job in jobs]
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
    with locked(root) as lock:
        for job in jobs:
            check_recorded(job, root / job.name)
        board = Board(jobs, root)
        for name in board.done:  # a kill may have come before a run was compact
            conclude(root / name, arguments.compact)
        runner = runner_of(arguments, [job for job in jobs if job.name not in board.done], lock)
        work(runner, board, signals)
    return board, runner


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = parse(given)
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        with listening() as signals:
            jobs = jobs_of(
                groups_of(arguments), {"env_threads": 1} if arguments.jobs > 1 or arguments.cluster is not None else {}
            )
            board, runner = execute(arguments, jobs, signals)
    except (ValueError, OSError) as error:
        print(f"geonpg compare: {error}", file=sys.stderr)
        return 2
    counted = f"{len(board.done)} of {len(jobs)} runs are done in {arguments.results}"
    if signals():
        print(f"stopped: {counted}; go on with: {shlex.join(['geonpg', 'compare', *given])}")
        return 128 + signals.received
    print(counted)
    for name, reason in runner.failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())

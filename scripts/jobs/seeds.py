"""`geonpg train --seeds 0-4` after its arguments are parsed: one run per seed, in the queue of `geonpg compare`."""

import logging
import shlex
import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from geonpg.errors import Refused
from geonpg.scripts.common.locks import locked
from geonpg.scripts.common.parser import refuse
from geonpg.scripts.common.stopping import listening
from geonpg.scripts.jobs.comparing import make_runs, print_outcome
from geonpg.scripts.jobs.job import Job, our_job
from geonpg.scripts.jobs.matrix import seeds_from
from geonpg.scripts.jobs.queue import LOCK_SECONDS
from geonpg.scripts.runs.building import make_env
from geonpg.scripts.runs.folder import EVALUATIONS
from geonpg.scripts.runs.memory import check_memory
from geonpg.scripts.runs.naming import next_commands, run_name
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.recorded import require_same
from geonpg.scripts.runs.training import overrides_from, plan_from


def jobs_for(arguments: Namespace) -> Iterator[Job]:
    """Make one job per seed; everything that is wrong raises Refused here, before any folder is made."""
    seeds, overrides = list(dict.fromkeys(seeds_from(arguments.seeds))), overrides_from(arguments)
    if min(arguments.jobs, len(seeds)) > 1:
        overrides.setdefault("env_threads", 1)  # which changes no result
    plan = plan_from(arguments)
    check_plan(plan)
    for seed in seeds:
        name = run_name(replace(plan, seed=seed))
        check_folder(arguments.runs / name, replace(plan, seed=seed))
        job = our_job(plan.env_id, plan.preset, None, seed, overrides)
        yield replace(job, folder=name, arguments=(*job.arguments, "--device", plan.device))


def check_plan(plan: OurPlan) -> None:
    """Refuse a plan that no run could begin with: an unknown environment, or too little memory."""
    env = make_env(plan.settings, plan.env_id, plan.settings.n_envs, plan.seed)
    check_memory(plan.settings, env)
    env.close()


def check_folder(folder: Path, plan: OurPlan) -> None:
    """Refuse a folder that holds anything but this run; wait for what a killed command has left at work there."""
    if not folder.exists():
        return
    require_same(folder, plan, "choose other --runs", steps_advice="say so by --steps, or ")
    with locked(folder, LOCK_SECONDS):
        pass


def train_seeds(arguments: Namespace, given: Sequence[str]) -> int:
    """Train one run per seed; return the exit code. `given` is the command line, to be repeated."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        with listening() as signals:
            jobs = list(jobs_for(arguments))
            arguments.runs.mkdir(parents=True, exist_ok=True)
            asked = Namespace(results=arguments.runs, jobs=arguments.jobs, compact=False, cluster=None)
            board, queue = make_runs(asked, jobs, signals)
    except (Refused, OSError) as error:
        return refuse("geonpg train", error)
    code = print_outcome(board, queue, signals, shlex.join(["geonpg", "train", *given]))
    if code == 0:
        print(summary(arguments.runs, jobs))
    return code


def summary(runs: Path, jobs: Sequence[Job]) -> str:
    """Describe the last evaluation of every run and their mean, and suggest what to do next."""
    last = {job.folder: EVALUATIONS.read(runs / job.folder)[-1] for job in jobs}
    means = [evaluation.mean for evaluation in last.values()]
    lines = [f"  {folder}: {evaluation.mean:.1f} ± {evaluation.std:.1f}" for folder, evaluation in last.items()]
    spread = f" ± {statistics.stdev(means):.1f}" if len(means) > 1 else ""
    lines.append(f"mean over seeds: {statistics.mean(means):.1f}{spread}")
    best = max(last, key=lambda folder: last[folder].mean)
    return "\n".join([*lines, next_commands(runs / best, jobs[0].env_id, curves=runs)])

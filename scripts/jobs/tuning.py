"""`geonpg tune` after its arguments are parsed: trials on Ray Tune, and a preset from the best of them."""

import logging
import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from geonpg.configs import Settings, load, to_toml
from geonpg.errors import Refused, require
from geonpg.files import write_text
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.locks import alone, locked
from geonpg.scripts.common.parser import refuse
from geonpg.scripts.common.pin import pin
from geonpg.scripts.jobs.queue_ray import INSTALL, connected
from geonpg.scripts.runs.building import make_env
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.run import Run

SEED = 100  # far from the seeds that one reports
EVALUATIONS = 10  # of a trial that runs to its end
REDUCTION, GRACE = 3, 2  # ASHA keeps a third at every rung; the first is after so many evaluations
SEARCH = "search.json"  # in the folder of trials
LEADERS = 5  # trials that are shown

# What is drawn for a trial: ("log", low, high) or a list of choices.
SPACE: Mapping[str, Any] = {
    "target_kl": ("log", 3e-4, 3e-2),
    "learning_rate": ("log", 0.03, 1.0),
    "damping": ("log", 1e-3, 0.3),
    "gradient_averaging": [0.0, 0.5, 0.8, 0.9],
    "gamma": [0.98, 0.99, 0.995],
    "gae_lambda": [0.9, 0.95, 0.98],
    "log_std_init": [-1.4, -0.7, 0.0],
    "n_steps": [32, 64, 128],
}


def pin_search(arguments: Namespace) -> None:
    """Write down what is searched: Ray would resume another search in the same folder as if it were this one."""
    asked = {name: getattr(arguments, name) for name in ("env", "steps", "trials", "minutes")}
    settings = to_toml(load(arguments.preset, arguments.env))
    pin(arguments.results / SEARCH, asked | {"settings": settings}, "choose other --results")


def settings_of(preset: str, env_id: str, steps: int, chosen: Mapping[str, Any]) -> Settings:
    """Return a trial's settings: the preset with what was drawn, on one thread, for so many steps."""
    budget = {"steps": steps, "eval_every": max(1, steps // EVALUATIONS), "env_threads": 1}
    return load(preset, env_id, {**chosen, **budget})


def trial(chosen: Mapping[str, Any], preset: str, env_id: str, steps: int) -> None:
    """Train one trial, from its last checkpoint if it has one, and report every evaluation to Ray."""
    tune = import_module("ray.tune")
    folder = Path(tune.get_context().get_trial_dir()) / "run"
    plan = OurPlan(env_id, SEED, settings_of(preset, env_id, steps, chosen), preset)
    reported = 0

    def watch(run: Run[Any]) -> None:
        nonlocal reported
        if len(run.history.evaluations) > reported:
            reported = len(run.history.evaluations)
            last = run.history.evaluations[-1]
            tune.report({"score": last.mean, "steps": last.steps})

    with alone(folder, partial(Run.begin_or_resume, plan, folder)) as run:
        reported = len(run.history.evaluations)
        run.train(lambda: False, watch)


def space(tune: Any) -> dict[str, Any]:
    """Return the search space in Ray Tune's terms."""
    return {
        key: tune.choice(drawn) if isinstance(drawn, list) else tune.loguniform(*drawn[1:])
        for key, drawn in SPACE.items()
    }


def tuner_of(arguments: Namespace, preset: str) -> Any:
    """Make Ray Tune's tuner, new or restored from an interrupted search."""
    tune, schedulers = import_module("ray.tune"), import_module("ray.tune.schedulers")
    trainable = partial(trial, preset=preset, env_id=arguments.env, steps=arguments.steps)
    path = str(arguments.results)
    if tune.Tuner.can_restore(path):
        return tune.Tuner.restore(path, trainable, resume_unfinished=True, restart_errored=True)
    asha = schedulers.ASHAScheduler(
        time_attr="steps",
        max_t=arguments.steps,
        grace_period=GRACE * arguments.steps // EVALUATIONS,
        reduction_factor=REDUCTION,
    )
    budget = None if arguments.minutes is None else 60 * arguments.minutes
    return tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space=space(tune),
        tune_config=tune.TuneConfig(
            metric="score", mode="max", scheduler=asha, num_samples=arguments.trials, time_budget_s=budget
        ),
        run_config=tune.RunConfig(name=arguments.results.name, storage_path=str(arguments.results.parent), verbose=1),
    )


def write_best(arguments: Namespace, grid: Any) -> Table:
    """Write the best trial's settings as a preset; return the leaders as a table."""
    ended = [result for result in grid if result.metrics and "score" in result.metrics]
    if not ended:
        raise Refused("no trial has come to its first evaluation: give it more --minutes, or fewer --steps")
    # those that ASHA let run to the end come first: an early score is another race's
    leaders = sorted(ended, key=lambda r: (r.metrics["steps"], r.metrics["score"]), reverse=True)
    whole = [r for r in leaders if r.metrics["steps"] >= arguments.steps] or leaders
    leaders = sorted(whole, key=lambda r: r.metrics["score"], reverse=True)[:LEADERS]
    best = settings_of(arguments.preset, arguments.env, arguments.steps, leaders[0].config)
    own = asdict(load(arguments.preset, arguments.env))
    budget = {key: own[key] for key in ("steps", "eval_every", "env_threads")}  # the preset's again
    description = f"tuned on {arguments.env} from {Path(arguments.preset).stem}"
    write_text(arguments.out, to_toml(replace(best, **budget), description))
    rows = [[r.metrics["score"], r.metrics["steps"], *(r.config[key] for key in SPACE)] for r in leaders]
    return Table("tune", f"The best of {len(ended)} trials on {arguments.env}", ("score", "steps", *SPACE), rows)


def checked_search(arguments: Namespace) -> Table:
    """Check the arguments, then search in a locked folder; return the leaders as a table."""
    steps = arguments.steps
    require(steps >= EVALUATIONS, f"--steps must be at least {EVALUATIONS}, the evaluations of a trial, not {steps}")
    make_env(settings_of(arguments.preset, arguments.env, arguments.steps, {}), arguments.env, 1, 0).close()
    preset = str(Path(arguments.preset).resolve()) if arguments.preset.endswith(".toml") else arguments.preset
    arguments.results.mkdir(parents=True, exist_ok=True)
    with locked(arguments.results):
        pin_search(arguments)
        return search(arguments, preset)


def search(arguments: Namespace, preset: str) -> Table:
    """Connect to Ray and run the search; return the leaders as a table."""
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
    ray = connected(arguments.cluster)
    try:
        grid = tuner_of(arguments, preset).fit()
        return write_best(arguments, grid)
    finally:
        ray.shutdown()


def tune(arguments: Namespace) -> int:
    """Search as the arguments say; return the exit code."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        table = checked_search(arguments)
    except ImportError as error:
        return refuse("geonpg tune", f"it needs Ray Tune ({error}): {INSTALL}")
    except (Refused, OSError) as error:
        return refuse("geonpg tune", error)
    print(table.markdown())
    print(f"\nwritten: {arguments.out}; train with it: geonpg train --env {arguments.env} --preset {arguments.out}")
    return 0

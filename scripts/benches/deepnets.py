"""What one Hessian-free update costs: CURVES at its true architecture, corrections switched on.

One run of `geof` leads; from each of its states every rule takes one update, so that all face the same systems.
"""

import statistics
import time
from collections import defaultdict
from dataclasses import replace

from tqdm import tqdm

from geonpg.kfac import HessianFree, HessianFreeSettings
from geonpg.scripts.deep.tasks import TASKS, Experiment, prepare

CASES, REPEATS, NAMES = 1200, 5, ("ng", "mid", "geo", "geof")
LEADER = "geof"  # its state holds what any rule remembers
WARM_UP = 14  # updates before the measurement: by then corrections are on and solves long, as in most of a run


def optimizer(experiment: Experiment, rule: str) -> HessianFree:
    settings = HessianFreeSettings(threshold=experiment.task.threshold)
    return HessianFree(experiment.problem, experiment.start(0), rule, settings)


def measure() -> dict[str, float]:
    """Processor seconds per update as a multiple of ng's, and conjugate-gradient iterations per update."""
    task = TASKS["curves"]
    experiment = prepare(task, replace(task.sizes["full"], train=CASES, test=1), None, 0)
    leader = optimizer(experiment, LEADER)
    ratios, seconds = defaultdict[str, list[float]](list), dict[str, float]()
    iterations = defaultdict[str, list[float]](list)
    with tqdm(total=WARM_UP + REPEATS, desc="deepnets", leave=False, disable=None) as bar:
        for update in range(WARM_UP + REPEATS):
            if update >= WARM_UP:
                for name in NAMES:
                    follower = optimizer(experiment, name)
                    follower.load_state_dict(leader.state_dict())
                    started = time.process_time()
                    iterations[name].append(follower.step().iterations)
                    seconds[name] = time.process_time() - started
                for name in NAMES:
                    ratios[name].append(seconds[name] / seconds["ng"])
            leader.step()
            bar.update()
    results = {f"deepnets/{name}_over_ng": statistics.median(ratios[name]) for name in NAMES}
    results |= {f"deepnets/{name}_iterations": statistics.median(iterations[name]) for name in NAMES}
    return {name: float(value) for name, value in results.items()} | {"deepnets/ng_seconds": seconds["ng"]}


def table(results: dict[str, float]) -> str:
    widths = "-".join(map(str, TASKS["curves"].sizes["full"].widths))
    lines = [
        f"one Hessian-free update, autoencoder {widths}, {CASES} cases, medians of {REPEATS} states",
        "",
        f"{'rule':8}{'x ng':>8}{'CG iterations':>16}",
    ]
    for name in NAMES:
        lines.append(
            f"{name:8}{results[f'deepnets/{name}_over_ng']:8.2f}{results[f'deepnets/{name}_iterations']:16.1f}"
        )
    return "\n".join(
        [*lines, "", f"an update of ng takes {results['deepnets/ng_seconds']:.2f} s of processor time here"]
    )

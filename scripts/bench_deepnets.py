"""What one Hessian-free update costs: CURVES at its true architecture, corrections switched on.

Every rule starts from the same state of one `ng` run and goes on by itself; rules take turns, update by update.
"""

import statistics
import time
from collections import defaultdict
from dataclasses import replace

from tqdm import tqdm

from geonpg.kfac import HessianFree, HessianFreeSettings
from geonpg.scripts.deepnets_tasks import TASKS, Experiment, prepare

CASES, REPEATS, NAMES = 2000, 6, ("ng", "mid", "geo", "geof")
# Updates of `ng` before the measurement: by then conjugate gradients take all their iterations, as in most of a run.
WARM_UP = 16


def from_state(experiment: Experiment, rule: str, state: HessianFree | None) -> HessianFree:
    y = experiment.start(0)
    optimizer = HessianFree(experiment.problem, y, rule, HessianFreeSettings(threshold=experiment.task.threshold))
    if state is not None:
        optimizer.load_state_dict(state.state_dict())
    return optimizer


def measure() -> dict[str, float]:
    """Seconds and conjugate-gradient iterations per update, as multiples of ng's."""
    task = TASKS["curves"]
    experiment = prepare(task, replace(task.sizes["full"], train=CASES, test=1), None, 0)
    common = from_state(experiment, "ng", None)
    seconds, iterations = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    with tqdm(total=WARM_UP + len(NAMES) * (REPEATS + 1), desc="deepnets", leave=False, disable=None) as bar:
        for _ in range(WARM_UP):
            common.step()
            bar.update()
        optimizers = {name: from_state(experiment, name, common) for name in NAMES}
        for repeat in range(REPEATS + 1):
            for name, optimizer in optimizers.items():
                started = time.perf_counter()
                report = optimizer.step()
                bar.update()
                if repeat:  # the first update of geof is geo's
                    seconds[name].append(time.perf_counter() - started)
                    iterations[name].append(report.iterations)
    plain = statistics.median(seconds["ng"])
    results = {f"deepnets/{name}_over_ng": statistics.median(seconds[name]) / plain for name in NAMES}
    results |= {f"deepnets/{name}_iterations": statistics.fmean(iterations[name]) for name in NAMES}
    return results | {"deepnets/ng_seconds": plain}


def table(results: dict[str, float]) -> str:
    widths = "-".join(map(str, TASKS["curves"].sizes["full"].widths))
    lines = [
        f"one Hessian-free update, autoencoder {widths}, {CASES} cases, medians of {REPEATS} interleaved updates",
        "",
        f"{'rule':8}{'x ng':>8}{'CG iterations':>16}",
    ]
    for name in NAMES:
        lines.append(
            f"{name:8}{results[f'deepnets/{name}_over_ng']:8.2f}{results[f'deepnets/{name}_iterations']:16.1f}"
        )
    return "\n".join([*lines, "", f"an update of ng takes {results['deepnets/ng_seconds']:.2f} s here"])

"""What one Hessian-free update costs: CURVES at its true architecture, corrections switched on.

One run of `geof` leads; from each of its states every rule takes one update, so that all face the same systems.
"""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from tqdm import tqdm

from geonpg.configs import METHODS
from geonpg.kfac import HessianFree, HessianFreeSettings
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.deep.tasks import DEEP_TASKS, Experiment, make_experiment

CASES, REPEATS = 1200, 5
LEADER = "geof"  # its state holds what any rule remembers
WARM_UP = 14  # updates before the measurement: by then corrections are on and solves long, as in most of a run
TASK = DEEP_TASKS["curves"]


class Cost(NamedTuple):
    """What one update took."""

    seconds: float  # of the processor
    iterations: int  # of conjugate gradients


@dataclass(frozen=True)
class DeepnetsFindings(Findings):
    """The cost of an update by every rule, from each of several states."""

    states: list[Mapping[str, Cost]]  # rule -> cost

    def over_ng(self, rule: str) -> float:
        """How many times the cost of an `ng` update from the same state; the median."""
        return statistics.median(costs[rule].seconds / costs["ng"].seconds for costs in self.states)

    def iterations(self, rule: str) -> float:
        """Conjugate-gradient iterations of an update; the median."""
        return statistics.median(costs[rule].iterations for costs in self.states)

    @property
    def ng_seconds(self) -> float:
        """Processor seconds of the last `ng` update."""
        return self.states[-1]["ng"].seconds

    def numbers(self) -> Numbers:
        ratios = {f"{rule}_over_ng": self.over_ng(rule) for rule in METHODS}
        iterations = {f"{rule}_iterations": self.iterations(rule) for rule in METHODS}
        return {"deepnets": {**ratios, **iterations, "ng_seconds": self.ng_seconds}}

    def table(self) -> str:
        widths = "-".join(map(str, TASK.sizes["full"].widths))
        lines = [f"one Hessian-free update, autoencoder {widths}, {CASES} cases, medians of {REPEATS} states", ""]
        lines.append(f"{'rule':8}{'x ng':>8}{'CG iterations':>16}")
        lines += [f"{rule:8}{self.over_ng(rule):8.2f}{self.iterations(rule):16.1f}" for rule in METHODS]
        return "\n".join([*lines, "", f"an update of ng takes {self.ng_seconds:.2f} s of processor time here"])


def optimizer(experiment: Experiment, rule: str) -> HessianFree:
    """Return an optimiser at the start of training."""
    settings = HessianFreeSettings(threshold=experiment.task.threshold)
    return HessianFree(experiment.problem, experiment.start(0), rule, settings)


def cost(experiment: Experiment, rule: str, leader: HessianFree) -> Cost:
    """Take one update by a rule from the leader's state."""
    follower = optimizer(experiment, rule)
    follower.load_state_dict(leader.state_dict())
    started = time.process_time()
    iterations = follower.step().iterations
    return Cost(time.process_time() - started, iterations)


def measure() -> DeepnetsFindings:
    """Measure the cost of an update by every rule from the last states of a run."""
    experiment = make_experiment(TASK, replace(TASK.sizes["full"], train=CASES, test=1), None, 0)
    leader, states = optimizer(experiment, LEADER), list[Mapping[str, Cost]]()
    for update in tqdm(range(WARM_UP + REPEATS), desc="deepnets", leave=False, disable=None):
        if update >= WARM_UP:
            states.append({rule: cost(experiment, rule, leader) for rule in METHODS})
        leader.step()
    return DeepnetsFindings(states)

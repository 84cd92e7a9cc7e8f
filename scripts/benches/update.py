"""What one policy update costs: actor 17-64-64-6, batch 2000, repeats interleaved."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from tqdm import tqdm

from geonpg.configs import METHODS
from geonpg.kfac import Call, NaturalGradient, Network, TrustRegion
from geonpg.scripts.benches.bandit import FAMILY, Bandit, actor
from geonpg.scripts.benches.findings import Findings, Numbers

SOLVERS, REPEATS, WARM_UP = ("kfac", "pcg"), 100, 3

Job = Callable[[], object]


@dataclass(frozen=True)
class UpdateFindings(Findings):
    """Median seconds of one update."""

    natural: Mapping[str, Mapping[str, float]]  # solver -> rule
    adam: float
    written_out: float  # R and S of the actor on the batch, by our own formulas
    torch_func: float  # the same by torch.func

    def ratios(self, solver: str, rule: str) -> tuple[float, float]:
        """How many times the cost of an `ng` update, and of an Adam step, an update takes."""
        seconds = self.natural[solver]
        return seconds[rule] / seconds["ng"], seconds[rule] / self.adam

    @property
    def speedup(self) -> float:
        """How many times as fast the written-out derivatives are as those of torch.func."""
        return self.torch_func / self.written_out

    def numbers(self) -> Numbers:
        found: dict[str, float | Numbers] = {}
        for solver, seconds in self.natural.items():
            ratios = {rule: self.ratios(solver, rule) for rule in seconds}
            over_ng = {f"{rule}_over_ng": ratio for rule, (ratio, _) in ratios.items()}
            found[solver] = over_ng | {f"{rule}_over_adam": ratio for rule, (_, ratio) in ratios.items()}
        found |= {"fast_derivatives_speedup": self.speedup, "adam_milliseconds": 1e3 * self.adam}
        return {"update": found}

    def table(self) -> str:
        lines = [f"one update, actor 17-64-64-6, batch 2000, medians of {REPEATS} interleaved repeats", ""]
        lines.append(f"{'solver':8}{'rule':8}{'x ng':>8}{'x Adam':>10}")
        for solver, seconds in self.natural.items():
            for rule in seconds:
                over_ng, over_adam = self.ratios(solver, rule)
                lines.append(f"{solver:8}{rule:8}{over_ng:8.2f}{over_adam:10.2f}")
        lines += ["", f"an Adam step on the same loss takes {1e3 * self.adam:.2f} ms here"]
        return "\n".join([*lines, f"written-out derivatives (R, S) are {self.speedup:.1f} times as fast as torch.func"])


def adam_step() -> Job:
    """Return a job that takes one Adam step."""
    policy = actor(0)
    closure, optimizer = Bandit(0).closure(policy), torch.optim.Adam(policy.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.step(closure)

    return step


def natural_step(rule: str, solver: str) -> Job:
    """Return a job that takes one natural-gradient step."""
    policy = actor(0)
    closure = Bandit(0).closure(policy)
    # a tiny trust region keeps every step near the recorded policy, as the first step of an update is
    control = TrustRegion(max_kl=1e-5)
    optimizer = NaturalGradient(policy, FAMILY, rule=rule, solver=solver, control=control)
    return lambda: optimizer.step(closure)


def derivative_pass(written_out: bool) -> Job:
    """Return a job that computes R and S of the actor on the batch."""
    policy = actor(0)
    network, states = Network(policy, written_out=written_out), Bandit(0).record(policy)[0]
    y = network.layout.read()
    v = torch.randn(len(y), generator=torch.Generator().manual_seed(0))
    at = network.linearise(y, Call((states,)))
    return lambda: at.second(v)


def median_seconds(jobs: Mapping[tuple[str, ...], Job]) -> dict[tuple[str, ...], float]:
    """Time every job once per round; return the medians over the rounds after the warm-up."""
    times: dict[tuple[str, ...], list[float]] = {name: [] for name in jobs}
    for _ in tqdm(range(WARM_UP + REPEATS), desc="update", leave=False, disable=None):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[WARM_UP:]) for name, values in times.items()}


def measure() -> UpdateFindings:
    """Time one update by every solver and rule, an Adam step, and both ways to differentiate."""
    jobs: dict[tuple[str, ...], Job] = {(s, rule): natural_step(rule, s) for s in SOLVERS for rule in METHODS}
    others = {("adam",): adam_step(), ("written out",): derivative_pass(True), ("torch.func",): derivative_pass(False)}
    seconds = median_seconds(jobs | others)
    natural = {solver: {rule: seconds[solver, rule] for rule in METHODS} for solver in SOLVERS}
    return UpdateFindings(natural, *(seconds[name] for name in others))

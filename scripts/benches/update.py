"""What one policy update costs: actor 17-64-64-6, batch 2000, one thread pool, interleaved."""

import statistics
import time
from collections.abc import Callable

import torch
from tqdm import tqdm

from geonpg.kfac import Call, NaturalGradient, Network, TrustRegion
from geonpg.scripts.benches.bandit import FAMILY, Bandit, actor

RULES, SOLVERS, REPEATS = ("ng", "mid", "geo", "geof"), ("kfac", "pcg"), 100


def adam_step() -> Callable[[], object]:
    policy = actor(0)
    closure, optimizer = Bandit(0).closure(policy), torch.optim.Adam(policy.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.step(closure)

    return step


def natural_step(rule: str, solver: str) -> Callable[[], object]:
    policy = actor(0)
    closure = Bandit(0).closure(policy)
    # a tiny trust region keeps every step near the recorded policy, as the first step of an update is
    control = TrustRegion(max_kl=1e-5)
    optimizer = NaturalGradient(policy, FAMILY, rule=rule, solver=solver, control=control)
    return lambda: optimizer.step(closure)


def derivative_pass(written_out: bool) -> Callable[[], object]:
    """R and S of the actor on the batch."""
    policy = actor(0)
    network, states = Network(policy, written_out=written_out), Bandit(0).record(policy)[0]
    y = network.layout.read()
    v = torch.randn(len(y), generator=torch.Generator().manual_seed(0))
    at = network.linearise(y, Call((states,)))
    return lambda: at.second(v)


def median_times(jobs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds per call, medians over rounds in which every job runs once."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in tqdm(range(REPEATS + 3), desc="update", leave=False, disable=None):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[3:]) for name, values in times.items()}


def measure() -> dict[str, float]:
    jobs = {f"{solver}/{rule}": natural_step(rule, solver) for solver in SOLVERS for rule in RULES}
    jobs |= {"adam": adam_step(), "written out": derivative_pass(True), "torch.func": derivative_pass(False)}
    seconds = median_times(jobs)
    results = {}
    for solver in SOLVERS:
        for rule in RULES:
            results[f"update/{solver}/{rule}_over_ng"] = seconds[f"{solver}/{rule}"] / seconds[f"{solver}/ng"]
            results[f"update/{solver}/{rule}_over_adam"] = seconds[f"{solver}/{rule}"] / seconds["adam"]
    results["update/fast_derivatives_speedup"] = seconds["torch.func"] / seconds["written out"]
    results["update/adam_milliseconds"] = 1e3 * seconds["adam"]
    return results


def table(results: dict[str, float]) -> str:
    lines = [f"one update, actor 17-64-64-6, batch 2000, medians of {REPEATS} interleaved repeats", ""]
    lines.append(f"{'solver':8}{'rule':8}{'x ng':>8}{'x Adam':>10}")
    for solver in SOLVERS:
        for rule in RULES:
            over_ng, over_adam = (results[f"update/{solver}/{rule}_over_{base}"] for base in ("ng", "adam"))
            lines.append(f"{solver:8}{rule:8}{over_ng:8.2f}{over_adam:10.2f}")
    lines += ["", f"an Adam step on the same loss takes {results['update/adam_milliseconds']:.2f} ms here"]
    speedup = results["update/fast_derivatives_speedup"]
    return "\n".join([*lines, f"written-out derivatives (R, S) are {speedup:.1f} times as fast as torch.func"])

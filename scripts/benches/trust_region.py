"""How well a rule keeps its promise: actual over predicted KL, and what calibration does.

Two seeded problems: four policies at the start of training, each after one small update, and the same after
a hundred updates. Damping is 0.01 throughout; it decides how nonlinear a step is.
"""

import statistics
from collections import defaultdict
from dataclasses import replace

from tqdm import tqdm

from geonpg.kfac import RULES, CgSolver, NaturalGradient, TrustRegion
from geonpg.scripts.benches.bandit import FAMILY, Bandit, actor

KLS, SEEDS, DAMPING = (0.01, 0.03, 0.1, 0.3), range(4), 0.01
SOLVERS, NAMES = ("kfac", "pcg"), ("ng", "mid", "geo", "geof")
ITERATIONS = (1, 2, 5, 10)
STAGES = {"trust": 0, "trust-trained": 100}  # updates before the one that `geof` remembers

Samples = dict[str, list[float]]


def trained(seed: int, updates: int, solver: str, calibrate: bool) -> tuple[NaturalGradient, Bandit]:
    """A policy after some plain updates and one `geo` update, whose displacement `geof` will use."""
    policy, bandit = actor(seed), Bandit(100 + seed)
    warm = NaturalGradient(policy, FAMILY, rule="ng", solver="kfac", damping=DAMPING)
    for _ in range(updates):
        warm.step(bandit.closure(policy))
    last = TrustRegion(max_kl=0.0015)
    optimizer = NaturalGradient(
        policy, FAMILY, rule="geof", solver=solver, control=last, damping=DAMPING, calibrate=calibrate
    )
    optimizer.memory = warm.memory
    optimizer.step(bandit.closure(policy))
    return optimizer, bandit


def measure_one(stage: str, seed: int, solver: str, calibrate: bool, samples: Samples) -> None:
    optimizer, bandit = trained(seed, STAGES[stage], solver, calibrate)
    closure, layout = bandit.closure(optimizer.module), optimizer.geometry.network.layout
    for name in NAMES if calibrate else ("geo",):
        for kl in KLS:
            _, flow = optimizer.flow(closure)
            control = TrustRegion(lr=1e9, max_kl=kl, slack=1e9, max_halvings=0)
            move, _ = RULES[name].step(flow, flow.base, control, optimizer.last)
            layout.write(flow.base)
            label = name if calibrate else f"{name}-published"
            samples[f"{stage}/{solver}/{label}/{kl}"].append(move.actual_kl / kl)
            if name == "geo" and flow.correction is not None and kl == KLS[0]:
                kind = "calibrated" if calibrate else "published"
                ratio = flow.correction.residual_after / flow.correction.residual_before
                samples[f"{stage}/{solver}/residual_{kind}"].append(ratio)
                if calibrate:
                    samples[f"{stage}/{solver}/kappa"].append(flow.correction.kappa)


def measure_iterations(stage: str, seed: int, samples: Samples) -> None:
    """What is left of the residual after some iterations of preconditioned CG on the correction alone."""
    optimizer, bandit = trained(seed, STAGES[stage], "pcg", True)
    _, flow = optimizer.flow(bandit.closure(optimizer.module))
    v = flow.velocity(flow.base)
    for iterations in ITERATIONS:
        flow.geometry = replace(flow.geometry, solver=CgSolver(iterations=iterations))
        flow.acceleration(flow.base, v)
        if flow.correction is not None:
            ratio = flow.correction.residual_after / flow.correction.residual_before
            samples[f"{stage}/pcg/residual_after_{iterations}"].append(ratio)


def measure() -> dict[str, float]:
    """Means over the four policies."""
    samples: Samples = defaultdict(list)
    cells = [(g, s, v, c) for g in STAGES for s in SEEDS for v in SOLVERS for c in (True, False)]
    for stage, seed, solver, calibrate in tqdm(cells, desc="trust region", leave=False, disable=None):
        measure_one(stage, seed, solver, calibrate, samples)
    for stage in STAGES:
        for seed in SEEDS:
            measure_iterations(stage, seed, samples)
    return {name: statistics.fmean(values) for name, values in samples.items()}


def table(results: dict[str, float]) -> str:
    lines = [f"actual over predicted KL, damping {DAMPING}, means over {len(SEEDS)} policies"]
    for stage, updates in STAGES.items():
        lines += ["", f"{stage}: after {updates} updates and one of geo"]
        lines.append(f"{'solver':8}{'rule':16}" + "".join(f"{f'KL {kl}':>9}" for kl in KLS))
        for solver in SOLVERS:
            for name in (*NAMES, "geo-published"):
                cells = "".join(f"{results[f'{stage}/{solver}/{name}/{kl}']:9.2f}" for kl in KLS)
                lines.append(f"{solver:8}{name:16}{cells}")
        for solver in SOLVERS:
            kappa, *residuals = (
                results[f"{stage}/{solver}/{key}"] for key in ("kappa", "residual_calibrated", "residual_published")
            )
            text = "calibrated {:.2f}, published {:.2f}".format(*residuals)
            lines.append(f"{solver}: residual over that of no correction: {text}; kappa {kappa:.2f}")
        left = ", ".join(f"{k}: {results[f'{stage}/pcg/residual_after_{k}']:.2f}" for k in ITERATIONS)
        lines.append(f"pcg: residual by the iterations spent on the correction: {left}")
    return "\n".join(lines)

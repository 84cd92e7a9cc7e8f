"""How well a rule keeps its promise: actual over predicted KL, and what calibration does.

Two seeded problems: four policies at the start of training, each after one small update, and the same after
a hundred updates. Damping is 0.01 throughout; it decides how nonlinear a step is.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from tqdm import tqdm

from geonpg.configs import METHODS
from geonpg.kfac import RULES, CgSolver, NaturalGradient, TrustRegion
from geonpg.scripts.benches.bandit import FAMILY, Bandit, actor
from geonpg.scripts.benches.findings import Findings, Numbers

KLS, SEEDS, DAMPING = (0.01, 0.03, 0.1, 0.3), range(4), 0.01
SOLVERS = ("kfac", "pcg")
ITERATIONS = (1, 2, 5, 10)
STAGES = {"trust": 0, "trust-trained": 100}  # updates before the one that `geof` remembers


@dataclass(frozen=True)
class Probe:
    """Steps of one policy, or means over several, with the correction calibrated or as published."""

    kl_ratios: Mapping[str, Sequence[float]]  # actual over predicted KL: rule -> one per KL
    residual: float  # of the correction of `geo`, over that of no correction
    kappa: float  # the factor that calibration found


@dataclass(frozen=True)
class Stage:
    """Means over the policies after some updates."""

    calibrated: Mapping[str, Probe]  # by solver
    published: Mapping[str, Probe]
    residuals: Mapping[int, float]  # by the iterations that preconditioned CG spends on the correction alone

    def ratios(self, solver: str) -> dict[str, Sequence[float]]:
        """Actual over predicted KL by rule; the published correction has a row of its own."""
        return {**self.calibrated[solver].kl_ratios, "geo-published": self.published[solver].kl_ratios["geo"]}

    def numbers(self) -> Numbers:
        """Return the stage's numbers by solver."""
        found: dict[str, dict[str, float | Numbers]] = {}
        for solver in self.calibrated:
            by_kl = {name: dict(zip(map(str, KLS), many, strict=True)) for name, many in self.ratios(solver).items()}
            found[solver] = {
                **by_kl,
                "residual_calibrated": self.calibrated[solver].residual,
                "residual_published": self.published[solver].residual,
                "kappa": self.calibrated[solver].kappa,
            }
        found["pcg"] |= {f"residual_after_{iterations}": ratio for iterations, ratio in self.residuals.items()}
        return found

    def lines(self) -> list[str]:
        """Return the stage's part of the table."""
        lines = [f"{'solver':8}{'rule':16}" + "".join(f"{f'KL {kl}':>9}" for kl in KLS)]
        for solver in self.calibrated:
            for name, ratios in self.ratios(solver).items():
                lines.append(f"{solver:8}{name:16}" + "".join(f"{ratio:9.2f}" for ratio in ratios))
        for solver, ours in self.calibrated.items():
            residuals = f"calibrated {ours.residual:.2f}, published {self.published[solver].residual:.2f}"
            lines.append(f"{solver}: residual over that of no correction: {residuals}; kappa {ours.kappa:.2f}")
        left = ", ".join(f"{iterations}: {ratio:.2f}" for iterations, ratio in self.residuals.items())
        return [*lines, f"pcg: residual by the iterations spent on the correction: {left}"]


@dataclass(frozen=True)
class TrustRegionFindings(Findings):
    """What became of predicted KLs, by stage."""

    stages: Mapping[str, Stage]

    def numbers(self) -> Numbers:
        return {name: stage.numbers() for name, stage in self.stages.items()}

    def table(self) -> str:
        lines = [f"actual over predicted KL, damping {DAMPING}, means over {len(SEEDS)} policies"]
        for name, stage in self.stages.items():
            lines += ["", f"{name}: after {STAGES[name]} updates and one of geo", *stage.lines()]
        return "\n".join(lines)


def warmed_up(seed: int, updates: int) -> tuple[NaturalGradient, Bandit]:
    """Train a policy by plain updates; return its optimiser, and the bandit that its next batches come from."""
    policy, bandit = actor(seed), Bandit(100 + seed)
    optimizer = NaturalGradient(policy, FAMILY, rule="ng", solver="kfac", damping=DAMPING)
    for _ in range(updates):
        optimizer.step(bandit.closure(policy))
    return optimizer, bandit


def geo_update(warm: NaturalGradient, bandit: Bandit, solver: str, calibrate: bool) -> NaturalGradient:
    """Copy a policy and make one small `geo` update, whose displacement `geof` will use."""
    policy, control = deepcopy(warm.module), TrustRegion(max_kl=0.0015)
    optimizer = NaturalGradient(
        policy, FAMILY, rule="geof", solver=solver, control=control, damping=DAMPING, calibrate=calibrate
    )
    optimizer.memory = deepcopy(warm.memory)
    optimizer.step(bandit.closure(policy))
    return optimizer


def probe(warm: NaturalGradient, bandit: Bandit, solver: str, calibrate: bool) -> Probe:
    """Step from one policy to every KL by every rule; by `geo` alone if its correction is as published."""
    bandit = deepcopy(bandit)
    optimizer = geo_update(warm, bandit, solver, calibrate)
    closure, layout = bandit.closure(optimizer.module), optimizer.geometry.network.layout
    ratios, corrections = dict[str, list[float]](), []
    for name in METHODS if calibrate else ("geo",):
        ratios[name] = []
        for kl in KLS:
            _, flow = optimizer.flow(closure)
            control = TrustRegion(lr=1e9, max_kl=kl, slack=1e9, max_halvings=0)
            move, _ = RULES[name].step(flow, flow.base, control, optimizer.last)
            layout.write(flow.base)
            ratios[name].append(move.actual_kl / kl)
            if name == "geo":
                corrections.append(flow.correction)
    correction = corrections[0]  # it does not depend on how far the step goes
    assert correction is not None
    return Probe(ratios, correction.residual_after / correction.residual_before, correction.kappa)


def probe_iterations(warm: NaturalGradient, bandit: Bandit) -> list[float]:
    """Return what is left of the residual after some iterations of preconditioned CG on the correction alone."""
    bandit, left = deepcopy(bandit), list[float]()
    optimizer = geo_update(warm, bandit, "pcg", calibrate=True)
    _, flow = optimizer.flow(bandit.closure(optimizer.module))
    v = flow.velocity(flow.base)
    for iterations in ITERATIONS:
        flow.geometry = replace(flow.geometry, solver=CgSolver(iterations=iterations))
        flow.acceleration(flow.base, v)
        assert flow.correction is not None
        left.append(flow.correction.residual_after / flow.correction.residual_before)
    return left


def means(rows: Iterable[Sequence[float]]) -> list[float]:
    """Return the mean of every column."""
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]


def mean_probe(probes: Sequence[Probe]) -> Probe:
    """Average over policies."""
    ratios = {name: means(each.kl_ratios[name] for each in probes) for name in probes[0].kl_ratios}
    return Probe(ratios, *means((each.residual, each.kappa) for each in probes))


def measure_stage(updates: int, bar: "tqdm[None]") -> Stage:
    """Probe every policy after so many updates."""
    probes = {(solver, calibrate): list[Probe]() for solver in SOLVERS for calibrate in (True, False)}
    residuals = []
    for seed in SEEDS:
        start = warmed_up(seed, updates)
        for (solver, calibrate), found in probes.items():
            found.append(probe(*start, solver, calibrate))
        residuals.append(probe_iterations(*start))
        bar.update()
    calibrated, published = ({solver: mean_probe(probes[solver, kind]) for solver in SOLVERS} for kind in (True, False))
    return Stage(calibrated, published, dict(zip(ITERATIONS, means(residuals), strict=True)))


def measure() -> TrustRegionFindings:
    """Average over the policies, at both stages."""
    with tqdm(total=len(STAGES) * len(SEEDS), desc="trust region", leave=False, disable=None) as bar:
        return TrustRegionFindings({name: measure_stage(updates, bar) for name, updates in STAGES.items()})

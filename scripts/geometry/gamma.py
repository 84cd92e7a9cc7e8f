"""Fitting a Gamma distribution, the paper's first experiment: one model, four parameterisations.

The metric of each parameterisation is the pull-back of the (alpha, beta) Fisher matrix; gradient and
connection are then found by differentiating in that parameterisation, without knowledge of the others.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import digamma
from torch import Tensor

from geonpg.kfac import RULES, Constant, DenseFlow, StepFailure
from geonpg.scripts.common.artifacts import Cell, Table

# Called with what a finished piece of work cost, roughly in milliseconds; moves the progress bar.
Tick = Callable[[float], object]

# Milliseconds per step of each rule, roughly; only the progress bar's time left depends on them.
STEP_COST = {"ng": 1.0, "mid": 2.0, "geo": 4.0, "geof": 4.0, "ng_exact": 40.0, "geo_exact": 110.0}


@dataclass(frozen=True)
class Chart:
    """A parameterisation y > 0 by powers: (alpha, beta) = y ** powers."""

    name: str
    powers: tuple[float, float]

    def _powers(self, like: Tensor) -> Tensor:
        return torch.tensor(self.powers, dtype=like.dtype)

    def to_model(self, y: Tensor) -> Tensor:
        """Map y to (alpha, beta)."""
        return y ** self._powers(y)

    def from_model(self, point: Tensor) -> Tensor:
        """Map (alpha, beta) to y."""
        return point ** (1 / self._powers(point))

    def slope(self, y: Tensor) -> Tensor:
        """Return the diagonal of the Jacobian of `to_model`."""
        powers = self._powers(y)
        return powers * y ** (powers - 1)


CHARTS = (
    Chart("alpha, beta", (1, 1)),
    Chart("alpha, 1/beta", (1, -1)),
    Chart("alpha, cbrt(beta)", (1, 3)),
    Chart("sqrt(alpha), sqrt(beta)", (2, 2)),
)


@dataclass(frozen=True)
class Sample:
    """Data, as far as the likelihood needs them."""

    mean: float  # of x
    mean_log: float  # of log x

    @staticmethod
    def draw(shape: float = 20.0, rate: float = 20.0, size: int = 10_000, seed: int = 0) -> "Sample":
        """Draw from a Gamma distribution."""
        x = np.random.default_rng(seed).gamma(shape, 1 / rate, size)
        return Sample(float(x.mean()), float(np.log(x).mean()))

    def nll(self, alpha: Tensor, beta: Tensor) -> Tensor:
        """Return the negative log-likelihood per observation."""
        return torch.lgamma(alpha) - alpha * torch.log(beta) - (alpha - 1) * self.mean_log + beta * self.mean

    def best(self) -> Tensor:
        """Return the maximum-likelihood (alpha, beta), where log alpha - digamma(alpha) matches the data's."""
        gap = math.log(self.mean) - self.mean_log
        alpha = float(brentq(lambda a: math.log(a) - float(digamma(a)) - gap, 1e-3, 1e6, xtol=1e-13))
        return torch.tensor([alpha, alpha / self.mean], dtype=torch.float64)


def fisher(alpha: Tensor, beta: Tensor) -> Tensor:
    """Return the Fisher matrix in (alpha, beta)."""
    cross = -1 / beta
    return torch.stack([torch.polygamma(1, alpha), cross, cross, alpha / beta**2]).view(2, 2)


def gamma_flow(chart: Chart, sample: Sample) -> DenseFlow:
    """Build the natural-gradient flow of the fit in one parameterisation."""

    def loss(y: Tensor) -> Tensor:
        return sample.nll(*chart.to_model(y))

    def metric(y: Tensor) -> Tensor:
        slope = chart.slope(y)
        return slope.unsqueeze(1) * fisher(*chart.to_model(y)) * slope

    return DenseFlow(loss, metric)


@dataclass(frozen=True)
class Trajectory:
    """Where a method went."""

    method: str
    chart: Chart
    points: Tensor  # (alpha, beta) [steps + 1, 2], up to where it left the domain if it did
    left_domain: bool


@dataclass(frozen=True)
class Fit:
    """What a trajectory has to do, in any parameterisation."""

    sample: Sample
    start: Tensor  # (alpha, beta)
    h: float  # step size
    steps: int


def trace(method: str, chart: Chart, fit: Fit, tick: Tick) -> Trajectory:
    """Take every step of a fit by one method in one parameterisation."""
    flow, rule, control = gamma_flow(chart, fit.sample), RULES[method], Constant(lr=fit.h)
    y, last = chart.from_model(fit.start), None
    points = [fit.start]
    for _ in range(fit.steps):
        try:
            move, last = rule.step(flow, y, control, last)
        except StepFailure:
            break
        y = move.y
        point = chart.to_model(y)
        if not move.accepted or not bool(((y > 0) & point.isfinite()).all()):  # a long step may overflow
            break
        points.append(point)
        tick(STEP_COST[method])
    missing = fit.steps + 1 - len(points)
    tick(STEP_COST[method] * missing)
    return Trajectory(method, chart, torch.stack(points), missing > 0)


@dataclass(frozen=True)
class Spread:
    """How far one method's trajectories lie apart in (alpha, beta), over all pairs of parameterisations."""

    largest: float  # over all iterations
    relative: float  # to the distance from the origin, over all iterations
    final: float  # at the end


def spread_of(trajectories: Sequence[Trajectory]) -> Spread:
    """Compare the iterations that all trajectories reached."""
    reached = min(len(t.points) for t in trajectories)
    points = torch.stack([t.points[:reached] for t in trajectories])  # [charts, iterations, 2]
    apart = (points.unsqueeze(1) - points).norm(dim=-1)
    size = points.norm(dim=-1)
    relative = apart / torch.maximum(size.unsqueeze(1), size)
    return Spread(float(apart.max()), float(relative.max()), float(apart[..., -1].max()))


@dataclass(frozen=True)
class GammaStudy:
    """The fit by every method in every parameterisation."""

    sample: Sample
    trajectories: dict[str, list[Trajectory]]  # per method, one for each chart

    def excess(self, trajectory: Trajectory) -> Tensor:
        """Return the NLL above that of the best fit, per iteration."""
        return self.sample.nll(*trajectory.points.T) - self.sample.nll(*self.sample.best())

    def exact_error(self) -> float:
        """Return the largest distance between parameterisations under the methods that claim there is none."""
        exact = [many for method, many in self.trajectories.items() if math.isinf(RULES[method].order)]
        complete = not any(t.left_domain for many in exact for t in many)
        return max(spread_of(many).largest for many in exact) if complete else math.inf


def gamma_cost(iterations: int) -> float:
    """Return what `run_gamma` will tick in all."""
    return len(CHARTS) * iterations * sum(STEP_COST.values())


def run_gamma(iterations: int, tick: Tick) -> GammaStudy:
    """Fit from alpha = beta = 1 with step 0.5, as in the paper."""
    fit = Fit(Sample.draw(), torch.ones(2, dtype=torch.float64), h=0.5, steps=iterations)
    return GammaStudy(fit.sample, {m: [trace(m, chart, fit, tick) for chart in CHARTS] for m in RULES})


def invariance_table(study: GammaStudy) -> Table:
    """Make a table of the distances between parameterisations, by method."""

    def row(method: str, many: Sequence[Trajectory]) -> list[Cell]:
        found, left = spread_of(many), [t.chart.name for t in many if t.left_domain]
        return [method, found.largest, found.relative, found.final, "; ".join(left) or "none"]

    return Table(
        "gamma_invariance",
        "Gamma fit: distance between parameterisations",
        ("method", "largest distance", "largest relative", "final distance", "left the domain"),
        [row(method, many) for method, many in study.trajectories.items()],
        "Distances in (alpha, beta), the largest over all pairs of four parameterisations and over all iterations.",
    )


def speed_table(study: GammaStudy, enough: float = 0.01) -> Table:
    """Make a table of the iterations to a good fit, by method and parameterisation."""

    def iterations(trajectory: Trajectory) -> str:
        close = (study.excess(trajectory) <= enough).nonzero()
        return str(int(close[0])) if len(close) else "not reached"

    return Table(
        "gamma_speed",
        f"Gamma fit: iterations until the NLL is within {enough:g} of the best",
        ("method", *(chart.name for chart in CHARTS)),
        [[method, *map(iterations, many)] for method, many in study.trajectories.items()],
    )


def trajectory_table(study: GammaStudy) -> Table:
    """Make a table of every iterate."""
    rows: list[list[Cell]] = [
        [method, t.chart.name, k, *point, excess]
        for method, many in study.trajectories.items()
        for t in many
        for k, (point, excess) in enumerate(zip(t.points.tolist(), study.excess(t).tolist(), strict=True))
    ]
    columns = ("method", "parameterisation", "iteration", "alpha", "beta", "nll above best")
    return Table("gamma_trajectories", "Gamma fit: every iterate", columns, rows)

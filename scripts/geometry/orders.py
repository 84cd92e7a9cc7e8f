"""The paper's theorem, measured: the order of each rule as the step size falls.

Each rule is compared with the exact flow, with the Riemannian Euler method, and with itself in other parameterisations.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geonpg.kfac import RULES
from geonpg.scripts.common.artifacts import Cell, Table
from geonpg.scripts.geometry.gamma import CHARTS, STEP_COST, Chart, Fit, Sample, Tick, trace

# Not on the line alpha = beta, where the mean already fits and one of the two directions stands still. Of the eight
# pairs of start and time that were tried, this one comes closest to its asymptotic slopes.
START = (1.0, 2.0)
TIME = 0.5

FLOW, EULER, INVARIANCE = "exact flow", "Riemannian Euler method", "other parameterisations"
APPROXIMATE = tuple(name for name, rule in RULES.items() if math.isfinite(rule.order))

# Theorem 1 of the paper: geodesic corrections approach the Riemannian Euler method, not the flow.
EXPECTED: Mapping[str, Mapping[str, float]] = {
    FLOW: {"ng": 1, "mid": 2, "geo": 1, "geof": 1},
    EULER: {"ng": 1, "mid": 1, "geo": 2, "geof": 2},
    INVARIANCE: {method: RULES[method].order for method in APPROXIMATE},
}


def fitted_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Fit the slope of log y over log x by least squares, where y is positive and finite; nan below two points."""
    across, up = np.array(x), np.array(y)
    usable = np.isfinite(up) & (up > 0)
    return float(np.polyfit(np.log(across[usable]), np.log(up[usable]), 1)[0]) if usable.sum() >= 2 else math.nan


@dataclass(frozen=True)
class OrderStudy:
    """The error of every rule over step sizes."""

    h: list[float]
    errors: dict[str, dict[str, list[float]]]  # truth -> method -> one per h

    def slope(self, truth: str, method: str) -> float:
        """Return the order that was measured."""
        return fitted_slope(self.h, self.errors[truth][method])


def order_cost(divisions: Sequence[int]) -> float:
    """Return what `run_orders` will tick in all."""
    per_step = STEP_COST["geo_exact"] + len(CHARTS) * sum(STEP_COST[method] for method in APPROXIMATE)
    return STEP_COST["ng_exact"] + sum(divisions) * per_step


def largest(points: Tensor, others: Tensor) -> float:
    """Return the largest distance between a point of [m, 2] and one of [n, 2]."""
    return float((points.unsqueeze(1) - others).norm(dim=-1).max())


def run_orders(divisions: Sequence[int], tick: Tick) -> OrderStudy:
    """Take every rule from START for TIME in n steps; an error is the largest of all parameterisations, at the end."""
    sample, start = Sample.draw(), torch.tensor(START, dtype=torch.float64)

    def ends(method: str, n: int, charts: Sequence[Chart]) -> Tensor:
        """Return where the method arrives in each parameterisation: [charts, 2]."""
        fit = Fit(sample, start, TIME / n, n)
        return torch.stack([trace(method, chart, fit, tick).points[-1] for chart in charts])

    # the exact methods arrive at the same point in every parameterisation
    flow = ends("ng_exact", 1, CHARTS[:1])
    errors: dict[str, dict[str, list[float]]] = {truth: {method: [] for method in APPROXIMATE} for truth in EXPECTED}
    for n in divisions:
        euler = ends("geo_exact", n, CHARTS[:1])
        for method in APPROXIMATE:
            points = ends(method, n, CHARTS)
            for truth, target in ((FLOW, flow), (EULER, euler), (INVARIANCE, points)):
                errors[truth][method].append(largest(points, target))
    return OrderStudy([TIME / n for n in divisions], errors)


def order_table(study: OrderStudy) -> Table:
    """Make a table of measured and expected orders."""
    rows: list[list[Cell]] = [
        [truth, m, study.slope(truth, m), EXPECTED[truth][m]] for truth in EXPECTED for m in APPROXIMATE
    ]
    steps = f"{round(TIME / max(study.h))} to {round(TIME / min(study.h))}"
    return Table(
        "orders",
        "Orders of the rules",
        ("against", "method", "slope", "expected"),
        rows,
        f"Gamma model from alpha = {START[0]:g}, beta = {START[1]:g} for time {TIME:g} in {steps} steps: distance at"
        " the end in (alpha, beta), the largest of four parameterisations, and the slope of its logarithm over log h."
        " Start and time were chosen, of eight pairs tried, for clean slopes.",
    )


def order_error_table(study: OrderStudy) -> Table:
    """Make a table of every error."""
    rows: list[list[Cell]] = [
        [truth, method, h, error]
        for truth, methods in study.errors.items()
        for method, errors in methods.items()
        for h, error in zip(study.h, errors, strict=True)
    ]
    return Table("order_errors", "Orders of the rules: every error", ("against", "method", "h", "distance"), rows)

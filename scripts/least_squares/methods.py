"""Every method of the study by its name: our four rules with one damping control, and others' optimisers."""

import math
from functools import partial

from geonpg.configs.schema import METHODS
from geonpg.kfac import FixedGaussian, JacobianSolver, LevenbergMarquardt, NaturalGradient
from geonpg.scripts.least_squares.opponents import COUNT_JACOBIANS, OPPONENTS, Method
from geonpg.scripts.least_squares.problem import LeastSquares, Residuals
from geonpg.scripts.least_squares.recorder import Recorder

REFERENCE = "geo"  # which all others are compared with
DAMPING = 1e-3
# The limit on bending is none of `mid`, whose velocity half a step ahead of a minimum is half as long.
CONTROLS = {"mid": LevenbergMarquardt(most_bend=math.inf)}


def natural_gradient(problem: LeastSquares, record: Recorder, rule: str, scaling: str = "identity") -> None:
    """Take steps of a rule until none lowers the loss any more.

    scaling: what the damping multiplies: "identity", or "diagonal" for parameters of very different sizes.
    """
    residuals, solver = Residuals(problem), JacobianSolver(scaling=scaling)
    control = CONTROLS.get(rule, LevenbergMarquardt())
    optimizer = NaturalGradient(
        problem.module, FixedGaussian(), rule=rule, solver=solver, control=control, damping=DAMPING
    )
    with record.pausing():
        start = float(residuals.loss())
    record.note(start)
    while True:
        optimizer.step_residuals(*problem.terms)
        record.jacobians += optimizer.report.points
        if not optimizer.report.accepted:
            return
        with record.pausing():
            loss = float(residuals.loss())
        record.note(loss)


OURS: dict[str, Method] = {rule: partial(natural_gradient, rule=rule) for rule in METHODS}
ALL_METHODS: dict[str, Method] = {**OURS, **OPPONENTS}
# By Jacobians alone: what fits of a few parameters are judged by.
SCALED: dict[str, Method] = {rule: partial(natural_gradient, rule=rule, scaling="diagonal") for rule in METHODS}


def counts_jacobians(method: str) -> bool:
    """Whether a method computes Jacobians."""
    return method in OURS or method in COUNT_JACOBIANS

"""Optimisers of others on a least-squares problem: torch's Adam and L-BFGS, scipy's `least_squares`."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import least_squares
from torch import Tensor

from geonpg.scripts.least_squares.problem import LeastSquares, Residuals
from geonpg.scripts.least_squares.recorder import Recorder, Spent

Method = Callable[[LeastSquares, Recorder], None]  # works until it is done, or Spent is raised
Array = NDArray[np.float64]

ADAM_RATE = 3e-3
ADAM_SHARE = 1 / 3  # of the time, before L-BFGS
HISTORY = 100  # of L-BFGS
TOLERANCE = 1e-15  # of scipy, which should not end before its budget does


def closure_of(problem: LeastSquares, record: Recorder) -> Callable[[], Tensor]:
    """Make the closure of a torch optimiser: gradients set, the loss noted and returned."""
    residuals, parameters = Residuals(problem), list(problem.module.parameters())

    def closure() -> Tensor:
        for p in parameters:
            p.grad = None
        loss = residuals.loss()
        loss.backward()
        record.note(float(loss.detach()))
        return loss

    return closure


def adam(problem: LeastSquares, record: Recorder, share: float = 1.0) -> None:
    """Take steps of Adam on all residuals for a share of the budget's time."""
    closure, optimizer = closure_of(problem, record), torch.optim.Adam(problem.module.parameters(), lr=ADAM_RATE)
    while record.seconds < share * record.budget.seconds or share == 1.0:
        optimizer.step(closure)


def lbfgs(problem: LeastSquares, record: Recorder) -> None:
    """Take steps of L-BFGS with a strong Wolfe line search; one that finds no step starts again."""
    closure = closure_of(problem, record)
    while True:
        parameters, most = problem.module.parameters(), 10**9
        optimizer = torch.optim.LBFGS(
            parameters, 1.0, most, None, 0.0, 0.0, HISTORY, "strong_wolfe"
        )  # no tolerances: it works until it stands still
        optimizer.step(closure)


def adam_then_lbfgs(problem: LeastSquares, record: Recorder) -> None:
    """Begin with Adam and go on with L-BFGS."""
    adam(problem, record, ADAM_SHARE)
    lbfgs(problem, record)


def scipy_least_squares(problem: LeastSquares, record: Recorder, method: str, scale: float | str = "jac") -> None:
    """Run scipy's solver with our Jacobian until the budget is spent or it has converged.

    scale: the units of parameters: "jac" for those of the Jacobian's columns, 1 as they are.
    """
    residuals = Residuals(problem)
    start = residuals.start()

    def named(y: Array) -> dict[str, Tensor]:
        return residuals.named(torch.from_numpy(y.copy()))

    def vector(y: Array) -> Array:
        with torch.no_grad():
            found = residuals.vector(named(y))
        better = 0.5 * float(found.square().sum()) < record.best
        if better:
            residuals.write(torch.from_numpy(y.copy()))
        record.note(0.5 * float(found.square().sum()))
        return found.numpy()

    def jacobian(y: Array) -> Array:
        record.jacobians += 1
        with torch.no_grad():
            return residuals.jacobian(named(y)).numpy()

    tolerances = dict.fromkeys(("ftol", "xtol", "gtol"), TOLERANCE)
    with suppress(np.linalg.LinAlgError):  # a Jacobian that is not finite: it has failed
        least_squares(vector, start.numpy(), jacobian, method=method, x_scale=scale, max_nfev=10**6, **tolerances)


OPPONENTS: dict[str, Method] = {
    "adam": adam,
    "lbfgs": lbfgs,
    "adam-lbfgs": adam_then_lbfgs,
    "scipy-lm": partial(scipy_least_squares, method="lm"),
    "scipy-trf": partial(scipy_least_squares, method="trf"),
    "scipy-lm-unscaled": partial(scipy_least_squares, method="lm", scale=1.0),
    "scipy-trf-unscaled": partial(scipy_least_squares, method="trf", scale=1.0),
}
COUNT_JACOBIANS = [name for name in OPPONENTS if name.startswith("scipy")]  # the others know only gradients


def record_of(method: Method, problem: LeastSquares, record: Recorder) -> Recorder:
    """Run a method to its end."""
    with suppress(Spent):
        method(problem, record)
    return record

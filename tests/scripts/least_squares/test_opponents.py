"""Others' optimisers: they solve what they should, and what they did is recorded."""

import pytest
import torch

from geonpg.scripts.least_squares.fits import make_fit
from geonpg.scripts.least_squares.nist import make_regression
from geonpg.scripts.least_squares.opponents import COUNT_JACOBIANS, OPPONENTS, record_of
from geonpg.scripts.least_squares.pinns import make_pinn
from geonpg.scripts.least_squares.problem import Residuals
from geonpg.scripts.least_squares.recorder import Budget, Recorder

every_opponent = pytest.mark.parametrize("name", OPPONENTS)


@every_opponent
def test_the_loss_of_a_network_falls(name: str) -> None:
    problem = make_pinn("poisson", 1000, 6)
    residuals = Residuals(problem)
    start = float(residuals.loss().detach())
    record = record_of(OPPONENTS[name], problem, Recorder(Budget(seconds=1.0)))
    losses = [point.loss for point in record.points]
    assert losses[0] == pytest.approx(start)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * start
    assert record.points[-2].seconds < 1.0 <= record.points[-1].seconds
    assert (record.jacobians > 0) == (name in COUNT_JACOBIANS)


@pytest.mark.parametrize("name", ["lbfgs", "scipy-lm", "scipy-trf"])
def test_rosenbrock_is_solved(name: str) -> None:
    problem = make_fit("rosenbrock", 1000)
    record_of(OPPONENTS[name], problem, Recorder(Budget(seconds=20.0, target=1e-20)))
    torch.testing.assert_close(Residuals(problem).start(), torch.ones(2).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", COUNT_JACOBIANS)
def test_scipy_finds_what_is_certified_and_leaves_the_best_in_the_module(name: str) -> None:
    problem = make_regression("Misra1a", 1)
    record_of(OPPONENTS[name], problem, Recorder(Budget(jacobians=1000)))
    assert problem.error() < 1e-8


def test_adam_and_lbfgs_share_the_time() -> None:
    """Alone, Adam is far behind at the end."""
    alone, both = (
        record_of(OPPONENTS[name], make_pinn("poisson", 1000, 6), Recorder(Budget(seconds=2.0))).best
        for name in ("adam", "adam-lbfgs")
    )
    assert both < alone

"""Our rules with one control: against a dense Levenberg-Marquardt written out here, and what is recorded."""

import pytest
import torch
from dense_lm import DenseLm

from geonpg.configs.schema import METHODS
from geonpg.scripts.least_squares.fits import make_fit
from geonpg.scripts.least_squares.methods import ALL_METHODS, OURS, SCALED, counts_jacobians
from geonpg.scripts.least_squares.nist import make_regression
from geonpg.scripts.least_squares.opponents import OPPONENTS, record_of
from geonpg.scripts.least_squares.pinns import make_pinn
from geonpg.scripts.least_squares.problem import LeastSquares, Residuals
from geonpg.scripts.least_squares.recorder import Budget, Recorder

STEPS = 9
PROBLEMS = {
    "network": lambda: make_pinn("cubic", 1000, 6),
    "exponentials": lambda: make_fit("three-exponentials", 1003),
    "bumps": lambda: make_fit("gaussian-bumps", 1003),
}


@pytest.mark.parametrize("rule", ["ng", "geo"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_rules_do_what_levenberg_and_marquardt_do(name: str, rule: str) -> None:
    """Loss after loss, with rejected steps in between, until rounding tells them apart."""
    problem: LeastSquares = PROBLEMS[name]()
    truth = DenseLm(Residuals(problem), geodesic=rule == "geo")
    expected = [truth.loss, *(truth.step() for _ in range(STEPS))]
    assert truth.rejected > 0 or name == "exponentials"
    record = record_of(OURS[rule], PROBLEMS[name](), Recorder(Budget(jacobians=STEPS)))
    # ours finds the second derivative by differences, to about five digits
    precision = 1e-3 if rule == "geo" else 1e-5
    assert [point.loss for point in record.points] == pytest.approx(expected, rel=precision)
    assert record.jacobians == STEPS


@pytest.mark.parametrize("rule", METHODS)
def test_every_rule_lowers_the_loss_of_a_network(rule: str) -> None:
    record = record_of(OURS[rule], make_pinn("poisson", 1000, 6), Recorder(Budget(jacobians=12)))
    losses = [point.loss for point in record.points]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("rule", ["ng", "geo"])
def test_a_run_ends_when_no_step_lowers_the_loss(rule: str) -> None:
    """As at the solution of a regression, to the last digits."""
    problem = make_regression("Misra1a", 0)
    record = record_of(SCALED[rule], problem, Recorder(Budget(jacobians=500)))
    assert record.jacobians < 500
    assert problem.error() < 1e-8


def test_the_best_is_what_the_module_holds() -> None:
    problem = make_fit("rosenbrock", 1001)
    record = record_of(OURS["geo"], problem, Recorder(Budget(jacobians=100, target=1e-12)))
    assert float(Residuals(problem).loss().detach()) == record.best <= 1e-12
    torch.testing.assert_close(Residuals(problem).start(), torch.ones(2).double(), atol=1e-4, rtol=0)


def test_whether_a_method_counts_jacobians() -> None:
    assert set(ALL_METHODS) == {*METHODS, *OPPONENTS}
    assert [name for name in ALL_METHODS if not counts_jacobians(name)] == ["adam", "lbfgs", "adam-lbfgs"]

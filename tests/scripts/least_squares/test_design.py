"""The design of a study: the numbers it states are those of the problems."""

import pytest

from geonpg.scripts.least_squares.design import Design
from geonpg.scripts.least_squares.pinns import make_pinn
from geonpg.scripts.least_squares.problem import Residuals


@pytest.mark.parametrize("width", [4, 16, 64])
def test_parameters_and_residuals_are_counted_rightly(width: int) -> None:
    design, residuals = Design(width=width), Residuals(make_pinn("poisson", 0, width))
    assert len(residuals.start()) == design.parameters
    assert len(residuals.vector(residuals.named(residuals.start()))) == design.residuals

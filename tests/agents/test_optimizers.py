"""An agent's settings, as its optimisers have them."""

import pytest

from geonpg.agents.optimizers import solver_of
from geonpg.kfac import SOLVERS, CgSolver


@pytest.mark.parametrize("name", ["pcg", "cg"])
def test_E17_other_iterations_leave_the_rest_of_a_solver_alone(name: str) -> None:
    """Without a preconditioner the correction of `geof` needs five iterations, with one two."""
    ours, theirs = solver_of(name, 17), SOLVERS[name]
    assert isinstance(ours, CgSolver)
    assert isinstance(theirs, CgSolver)
    assert ours.iterations == 17
    assert ours.preconditioned == theirs.preconditioned == (name == "pcg")
    assert ours.correction_iterations == theirs.correction_iterations == (2 if name == "pcg" else 5)

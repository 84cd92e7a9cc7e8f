"""An agent's settings, as its optimisers have them."""

import pytest

from geonpg.agents import ACKTR
from geonpg.agents.optimizers import family_by, solver_of
from geonpg.agents.stepping import Stepper
from geonpg.envs import Normalize, make_vec
from geonpg.kfac import SOLVERS, Categorical, CgSolver, Gaussian, NaturalGradient


@pytest.mark.parametrize("name", ["pcg", "cg"])
def test_E17_other_iterations_leave_the_rest_of_a_solver_alone(name: str) -> None:
    """Without a preconditioner the correction of `geof` needs five iterations, with one two."""
    ours, theirs = solver_of(name, 17), SOLVERS[name]
    assert isinstance(ours, CgSolver)
    assert isinstance(theirs, CgSolver)
    assert ours.iterations == 17
    assert ours.preconditioned == theirs.preconditioned == (name == "pcg")
    assert ours.correction_iterations == theirs.correction_iterations == (2 if name == "pcg" else 5)


@pytest.mark.parametrize("method", ["ng", "mid", "geo", "geof"])
def test_long_steps_have_the_kl_that_was_asked_for(method: str) -> None:
    """By the metric alone they miss it: that is what the search is for."""
    long = {"target_kl": 0.2, "learning_rate": 1e3, "gradient_averaging": 0.0, "cautious": False, "anneal": False}
    env = Normalize(make_vec("Hopper-v4", 8, seed=0))
    agent = ACKTR("MlpPolicy", env, n_steps=128, seed=0, method=method, solver="pcg", trust_region="actual", **long)
    stepper = Stepper(agent, 100_000)
    reports = [stepper.step().report for _ in range(4)]
    assert all(report.actual_kl == pytest.approx(0.2, rel=0.021) for report in reports)
    assert any(abs(report.predicted_kl / 0.2 - 1) > 0.05 for report in reports)


def test_connection_and_curvature_reach_the_optimisers() -> None:
    chosen = {"connection": "blocks", "critic_curvature_every": 3, "curvature_every": 2}
    agent = ACKTR("MlpPolicy", "Pendulum-v1", n_steps=8, **chosen)
    family, critic = agent.optimizer.geometry.fisher.family, agent.critic_optimizer
    assert isinstance(family, Gaussian)
    assert family.blocks
    assert isinstance(critic, NaturalGradient)
    assert (agent.optimizer.curvature_every, critic.curvature_every) == (2, 3)
    assert isinstance(family_by("blocks", Categorical()), Categorical)
    joint = family_by("joint", Gaussian())
    assert isinstance(joint, Gaussian)
    assert not joint.blocks

"""Recorded steps: which make a batch, and what an update gains on them."""

import pytest
import torch

from geonpg.agents.stepping import Stepper
from geonpg.configs import load
from geonpg.scripts.maps.recorded import first_rows, record
from geonpg.scripts.runs.building import make_agent, make_env, normalization_of

SMALL = {"n_envs": 4, "n_steps": 32, "hidden": (16,), "critic_hidden": (16,)}


def test_a_batch_is_whole_rollouts_and_then_the_first_steps_of_every_environment() -> None:
    n_envs, n_steps = 3, 5
    rows = first_rows(2 * 15 + 6, n_envs, n_steps)
    expected = [*range(30), *(30 + 5 * env + step for env in range(n_envs) for step in range(2))]
    assert rows.tolist() == expected
    assert first_rows(15, n_envs, n_steps).tolist() == list(range(15))


def test_the_policy_gains_nothing_over_itself_although_normalisation_would_move() -> None:
    settings = load("default", "Reacher-v4", SMALL)
    agent = make_agent(settings, make_env(settings, "Reacher-v4", 4, 0), 0)
    stepper = Stepper(agent, 10_000)
    stepper.step()
    recorded = record(stepper, 300, seed=1)
    assert len(recorded.inputs) == 384  # three rollouts
    assert recorded.gain(agent.networks) == pytest.approx(0, abs=1e-6)
    assert agent.env is not None
    normalization = normalization_of(agent.env)
    assert normalization is not None
    assert normalization.training
    with torch.no_grad():
        agent.policy.log_std += 0.3
    z = agent.networks.actor(recorded.inputs)
    ratio = torch.exp(agent.networks.family.log_prob(z, recorded.draws) - recorded.log_prob)
    part = recorded.part(torch.arange(100))
    assert float(part.advantages.mean()) == pytest.approx(0, abs=1e-6)
    assert float(part.advantages.std()) == pytest.approx(1, abs=1e-5)
    for most in (1.1, 2.0, float("inf")):
        truth = float(((ratio.clamp(max=most) - 1) * recorded.advantages).mean().detach())
        assert recorded.gain(agent.networks, most) == pytest.approx(truth, abs=1e-6)
    loss = float(recorded.loss(agent.networks, z).detach())
    assert -loss == pytest.approx(recorded.gain(agent.networks) + float(recorded.advantages.mean()), abs=1e-6)

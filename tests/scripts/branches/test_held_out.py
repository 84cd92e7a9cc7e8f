"""Gains on held-out data, against the definition and against what an update promises."""

import pytest
import torch

from geonpg.agents.inputs import InputFollower
from geonpg.agents.stepping import Stepper
from geonpg.configs import load
from geonpg.scripts.branches.held_out import held_out, update
from geonpg.scripts.runs.building import make_agent, make_env

SMALL = {"n_envs": 4, "n_steps": 32, "hidden": (16,), "critic_hidden": (16,)}


def test_a_policy_gains_nothing_over_itself_and_a_better_one_gains_what_its_ratios_say() -> None:
    settings = load("default", "Reacher-v4", SMALL)
    agent = make_agent(settings, make_env(settings, "Reacher-v4", 4, 0), 0)
    unseen = held_out(Stepper(agent, 10_000), rollouts=3, seed=5)
    assert len(unseen.advantages) == 3 * 4 * 32
    assert unseen.gain(agent) == pytest.approx(0, abs=1e-6)
    assert float(unseen.advantages.mean()) == pytest.approx(0, abs=1e-5)
    before = unseen.entropy(agent)
    with torch.no_grad():
        agent.policy.log_std += 0.1
    distribution = agent.policy.get_distribution(unseen.inputs)
    ratio = torch.exp(distribution.log_prob(unseen.draws) - unseen.log_prob)
    assert unseen.gain(agent) == pytest.approx(float((ratio * unseen.advantages).mean().detach()), abs=1e-5)
    assert unseen.entropy(agent) - before == pytest.approx(0.1 * 2, abs=1e-5)


def test_an_update_gains_on_its_own_batch() -> None:
    settings = load("default", "Reacher-v4", {**SMALL, "target_kl": 0.01})
    agent = make_agent(settings, make_env(settings, "Reacher-v4", 4, 0), 0)
    batch = update(Stepper(agent, total_steps=10_000))
    assert agent.last_update is not None
    assert agent.last_update.n_updates == 1
    assert agent.num_timesteps == 4 * 32
    assert batch.gain(agent) > 0


def test_a_normalisation_that_moves_under_a_policy_that_follows_it_gains_nothing() -> None:
    settings = load("default", "Reacher-v4", {**SMALL, "target_kl": 1e-12})
    agent = make_agent(settings, make_env(settings, "Reacher-v4", 4, 0), 0)
    stepper = Stepper(agent, total_steps=100_000)
    for _ in range(40):
        stepper.step()
    unseen = held_out(stepper, rollouts=3, seed=5)
    for _ in range(10):
        stepper.step()
    moved = unseen.gain(agent)
    assert abs(moved) < 2e-4
    agent.input_follower = InputFollower(unseen.scale, unseen.scale)  # as if the inputs were still the same numbers
    assert abs(unseen.gain(agent)) > 10 * abs(moved)

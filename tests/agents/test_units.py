"""Returns of any size: what the critic learns of them, and that ordinary ones change nothing."""

import copy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from torch import nn

from geonpg.agents import ACKTR
from geonpg.agents.forms import misfit
from geonpg.agents.state import form_of, get_state
from geonpg.agents.units import fitting_units, reach_of, unit_for


@pytest.mark.parametrize(
    ("targets", "reach", "unit", "expected"),
    [
        (49.0, 6.2, 1.0, 1.0),  # beyond what the critic can output, but not far
        (50.0, 6.2, 1.0, 4.0),
        (830.0, 6.2, 1.0, 64.0),
        (1000.0, 2000.0, 1.0, 1.0),  # grown up to them little by little
        (1000.0, 2000.0, 64.0, 64.0),
        (2047.0, 2000.0, 64.0, 64.0),
        (2048.0, 2000.0, 64.0, 256.0),
        (100.0, 2000.0, 64.0, 8.0),
        (3.0, 2000.0, 64.0, 1.0),
        (0.0, 6.2, 1.0, 1.0),
    ],
)
def test_E16_units_of_targets(targets: float, reach: float, unit: float, expected: float) -> None:
    assert unit_for(targets, reach, unit) == expected


def test_reach_is_the_largest_output() -> None:
    head = nn.Linear(3, 1)
    with torch.no_grad():
        corners = head(torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3)).abs().max()
    assert reach_of(head) == pytest.approx(float(corners))


def agent_on(scale: float, steps: int, **settings: Any) -> ACKTR:
    """An agent that learnt CartPole with rewards of this size, without normalising them."""

    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: scale * float(reward))

    agent = ACKTR("MlpPolicy", make_vec_env(make, 8, seed=0), seed=0, **settings)
    return agent.learn(steps)


def saturated(agent: ACKTR) -> float:
    """The share of the critic's first-layer units that hardly move any more."""
    seen = torch.as_tensor(agent.rollout_buffer.observations.reshape(-1, 4))
    with torch.no_grad():
        return float((agent.networks.critic[0](seen).tanh().abs() > 0.99).float().mean())


@pytest.mark.parametrize("scale", [10.0, 100.0, 10_000.0])
def test_E16_the_critic_learns_large_returns_as_it_learns_small_ones(scale: float) -> None:
    """Relative to the returns its error is like that at scale one, and no more of it is saturated."""
    small, large = agent_on(1.0, 256 * 20), agent_on(scale, 256 * 20)
    errors = []
    for agent in (small, large):
        buffer = agent.rollout_buffer
        errors.append(float(np.sqrt(np.mean((buffer.values - buffer.returns) ** 2)) / buffer.returns.mean()))
    assert saturated(large) < 0.1
    assert errors[1] < 2 * errors[0] + 0.05
    unit = large.critic_optimizer.param_groups[0]["unit"]
    assert 2 <= float(np.sqrt(np.mean(large.rollout_buffer.returns**2))) / unit < 32
    assert "unit" not in small.critic_optimizer.param_groups[0]


def test_E16_the_unit_survives_saving(tmp_path: Path) -> None:
    agent = agent_on(100.0, 256 * 3)
    agent.save(tmp_path / "agent")
    loaded = ACKTR.load(tmp_path / "agent", env=agent.get_env())
    assert loaded.critic_optimizer.param_groups[0]["unit"] == agent.critic_optimizer.param_groups[0]["unit"] > 1


def fitted(agent: ACKTR, returns: float, fails: bool = False) -> float:
    with fitting_units(agent.networks, agent.critic_optimizer, torch.full((4,), returns), agent.ranks) as unit:
        if fails:
            raise KeyboardInterrupt
    return unit


def test_E16_a_state_with_a_unit_is_of_this_version() -> None:
    def thousandfold() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: 1000 * float(reward))

    env = make_vec_env(thousandfold, 4, seed=0)
    state = get_state(ACKTR("MlpPolicy", env, n_steps=32, seed=0).learn(256))
    assert state["critic_optimizer"]["param_groups"][0]["unit"] > 1
    assert misfit(state, form_of(ACKTR("MlpPolicy", env, n_steps=32, seed=0), state)) == ""


def test_E16_the_head_comes_back_to_the_last_bit_whatever_happens() -> None:
    agent = agent_on(1.0, 256)
    before = copy.deepcopy(agent.policy.state_dict())
    with pytest.raises(KeyboardInterrupt):
        fitted(agent, 1e6, fails=True)
    assert all(torch.equal(value, before[name]) for name, value in agent.policy.state_dict().items())
    with fitting_units(agent.networks, agent.critic_optimizer, torch.full((4,), 1e6), agent.ranks) as unit:
        assert unit == 2.0**16
        assert torch.equal(agent.policy.value_net.weight, before["value_net.weight"] / unit)
    assert fitted(agent, float("nan")) == 1.0


@pytest.mark.parametrize(
    "settings",
    [{"critic_target_kl": 0.1}, {"policy_kwargs": {"optimizer_class": torch.optim.Adam}}, {}],
    ids=["limited", "adam", "frozen"],
)
def test_E16_a_critic_that_is_not_ours_to_scale_is_left_alone(settings: dict[str, Any]) -> None:
    agent = agent_on(1.0, 256, **settings)
    if not settings:
        agent.policy.value_net.bias.requires_grad_(False)
    assert fitted(agent, 1e6) == 1.0

"""The batch of an update is the buffer's, environment by environment, whether its networks were run before or not."""

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.buffers import RolloutBuffer

from geonpg.agents import ACKTR
from geonpg.agents.batches import assessed, rows, whole_batch
from geonpg.agents.stepping import Stepper
from geonpg.envs import Normalize, make_vec


def rolled(env_id: str = "Reacher-v4", **kwargs: Any) -> ACKTR:
    agent = ACKTR("MlpPolicy", Normalize(make_vec(env_id, 3, seed=0)), n_steps=8, seed=0, **kwargs)
    Stepper(agent, 1000).roll()
    return agent


def test_rows_are_environment_by_environment() -> None:
    recorded = np.arange(24).reshape(4, 3, 2)  # four steps of three environments
    assert np.array_equal(rows(recorded), np.concatenate([recorded[:, i] for i in range(3)]))


def test_the_batch_is_the_one_that_sb3_makes() -> None:
    agent = rolled()
    assert agent.assessed is not None
    batch = agent.assessed.batch(agent.rollout_buffer)
    truth = whole_batch(agent.networks, agent.rollout_buffer)  # after it the buffer's rows are in order
    again = agent.assessed.batch(agent.rollout_buffer)
    for name in ("inputs", "actions", "old_log_prob", "advantages", "returns"):
        assert torch.equal(getattr(batch, name), getattr(truth, name)), name
        assert torch.equal(getattr(again, name), getattr(truth, name)), name
    assert truth.actor is None
    assert batch.critic is not None


def test_values_and_log_probabilities_are_those_of_sb3s_policy() -> None:
    agent = rolled()
    buffer = agent.rollout_buffer
    observations = torch.as_tensor(buffer.observations.reshape(-1, buffer.observations.shape[-1])).float()
    actions = torch.as_tensor(buffer.actions.reshape(-1, buffer.actions.shape[-1]))
    values, log_probs, _ = agent.policy.evaluate_actions(observations, actions)
    assert np.allclose(buffer.values.ravel(), values.detach().numpy().ravel(), atol=1e-5)
    assert np.allclose(buffer.log_probs.ravel(), log_probs.detach().numpy(), atol=1e-5)


class OwnBuffer(RolloutBuffer):
    """A buffer of the user's, which may do what it likes."""


@pytest.mark.parametrize(
    "kwargs",
    [
        {"policy_kwargs": {"optimizer_class": torch.optim.Adam}},
        {"rollout_buffer_class": OwnBuffer},
        {"policy_kwargs": {"activation_fn": torch.nn.GELU}},
    ],
    ids=["Adam", "buffer", "GELU"],
)
def test_other_critics_buffers_and_networks_take_the_general_path(kwargs: dict[str, Any]) -> None:
    agent = rolled(**kwargs)
    assert agent.assessed is None
    assert assessed(agent.networks, agent.optimizer, agent.critic_optimizer, agent.rollout_buffer) is None
    agent.train()
    assert agent.last_update is not None

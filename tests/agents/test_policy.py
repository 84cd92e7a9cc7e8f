"""The policy classes: what a saved one comes back as."""

from pathlib import Path

import gymnasium
import pytest
import torch
from torch import nn

from geonpg.agents import ACKTR
from geonpg.agents.policy import ACKTRPolicy


@pytest.mark.parametrize("activation", [None, nn.ELU])
def test_a_saved_policy_comes_back_with_its_critic(activation: type[nn.Module] | None, tmp_path: Path) -> None:
    network = {"critic_activation_fn": activation, "net_arch": [8, 8]}
    policy = ACKTR("MlpPolicy", "CartPole-v1", policy_kwargs=network, seed=0, device="cpu").policy
    policy.save(str(tmp_path / "policy"))
    again = ACKTRPolicy.load(str(tmp_path / "policy"), device="cpu")
    kinds = [type(layer) for layer in again.mlp_extractor.value_net]
    assert kinds == [nn.Linear, activation or nn.Tanh] * 2
    space = gymnasium.make("CartPole-v1").observation_space
    seen = torch.as_tensor(space.sample()).unsqueeze(0)
    assert torch.equal(policy.predict_values(seen), again.predict_values(seen))

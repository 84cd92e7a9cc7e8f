"""The policy classes: how their weights begin, what their critics see, and what a saved one comes back as."""

from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from torch import nn

from geonpg.agents import ACKTR
from geonpg.agents.policy import ACKTRPolicy
from geonpg.errors import Refused


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


def made(env: str = "Pendulum-v1", **network: Any) -> ACKTR:
    return ACKTR("MlpPolicy", env, n_steps=8, policy_kwargs={"net_arch": [8, 8], **network}, seed=0, device="cpu")


def test_rows_of_weights_have_their_lengths_at_the_start() -> None:
    policy = made(unit_rows=True).policy
    layers = {name: module for name, module in policy.named_modules() if isinstance(module, nn.Linear)}
    assert len(layers) == 6
    for name, layer in layers.items():
        length = 0.1 if name == "action_net" else 1.0
        torch.testing.assert_close(layer.weight.norm(dim=1), torch.full((layer.out_features,), length))
        assert not layer.bias.any()
    assert torch.equal(policy.action_net.weight, made(unit_rows=True).policy.action_net.weight), "by the seed"
    assert not torch.equal(policy.action_net.weight, made().policy.action_net.weight)


def test_a_critic_with_extras_comes_back_as_wide(tmp_path: Path) -> None:
    policy = made(critic_extras=True).policy
    policy.save(str(tmp_path / "policy"))
    again = ACKTRPolicy.load(str(tmp_path / "policy"), device="cpu")
    assert again.mlp_extractor.value_net[0].in_features == 3 + 2 + 1  # observation, mean and log std, time
    assert again.mlp_extractor.policy_net[0].in_features == 3
    for name, weights in policy.state_dict().items():
        assert torch.equal(weights, again.state_dict()[name])


@pytest.mark.parametrize(
    ("env", "network"), [("CartPole-v1", {}), ("Pendulum-v1", {"net_arch": {"pi": [8], "vf": []}})]
)
def test_extras_are_refused_where_the_critic_cannot_see_them(env: str, network: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="critic_extras takes continuous actions and a critic with hidden layers"):
        made(env, critic_extras=True, **network)

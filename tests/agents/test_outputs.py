"""The networks that the natural gradient sees, against the policy that SB3 sees."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import CategoricalDistribution
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn
from toy_envs import ACTIONS, OBSERVATIONS, policy_name, small

from geonpg.agents import ACKTR, ACKTRPolicy
from geonpg.agents.acting import draw
from geonpg.agents.outputs import Networks, draws_of

SDE = {"gSDE": {}, "squashed gSDE": {"squash_output": True}, "gSDE, expln": {"use_expln": True, "full_std": False}}


def make_policy(
    observations: str, actions: str, kind: Any = None, sde: bool = False, **own: Any
) -> tuple[ActorCriticPolicy, Networks, Any]:
    """A policy with random parameters, its networks, and six observations."""
    torch.manual_seed(0)
    cls = kind or ACKTR.policy_aliases[policy_name(observations)]
    policy: ActorCriticPolicy = cls(
        OBSERVATIONS[observations], ACTIONS[actions], lambda _: 1.0, use_sde=sde, **{**small(observations), **own}
    )
    with torch.no_grad():
        for name, p in policy.named_parameters():
            if name.endswith("weight"):
                p.mul_(2)  # otherwise every image would look the same behind four layers
            else:
                p.add_(0.3 * torch.randn_like(p))
    seen = batch(OBSERVATIONS[observations], 6)
    return policy, Networks(policy), seen


def batch(space: spaces.Space[Any], n: int) -> Any:
    """Random observations as SB3 hands them to a policy."""
    if isinstance(space, spaces.Dict):
        return {key: batch(part, n) for key, part in space.spaces.items()}
    space.seed(0)
    return torch.as_tensor(np.stack([space.sample() for _ in range(n)]))


def arrays(seen: Any) -> Any:
    """Observations as environments show them."""
    return {key: part.numpy() for key, part in seen.items()} if isinstance(seen, dict) else seen.numpy()


def outputs(networks: Networks, seen: Any) -> Tensor:
    with torch.no_grad():
        return networks.actor(networks.inputs(seen))


def truth(policy: ActorCriticPolicy, seen: Any) -> list[Tensor]:
    """What describes SB3's distribution, free of how logits are normalised."""
    with torch.no_grad():
        inner: Any = policy.get_distribution(seen).distribution
    if isinstance(inner, list):
        return [part.probs for part in inner]
    return [inner.mean, inner.stddev] if isinstance(inner, torch.distributions.Normal) else [inner.probs]


def described(z: Tensor, actions: str) -> list[Tensor]:
    """The same from z, by each family's definition."""
    if actions.startswith("Box"):
        mean, log_std = z.chunk(2, -1)
        return [mean, log_std.exp()]
    if actions == "MultiDiscrete":
        return [part.softmax(-1) for part in z.split([2, 5], -1)]
    return [z.softmax(-1) if actions == "Discrete" else z.sigmoid()]


CASES = [
    *((kind, actions) for kind in OBSERVATIONS for actions in ACTIONS if not actions.startswith("Box, ")),
    ("vector", "Box, a matrix"),
]


@pytest.mark.parametrize(("observations", "actions"), CASES)
def test_outputs_are_the_policys(observations: str, actions: str) -> None:
    """z, values, log-probabilities and entropies; every case has its own."""
    policy, networks, seen = make_policy(observations, actions)
    assert networks.standard
    z, expected = outputs(networks, seen), truth(policy, seen)
    assert len(z) == 6
    assert float(expected[0].std(0).min()) > 2e-3, "otherwise every case would look alike"
    for ours, theirs in zip(described(z, actions), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    check_values_and_probabilities(policy, networks, seen, z)


@pytest.mark.parametrize("name", SDE)
@pytest.mark.parametrize("observations", ["vector", "image", "dictionary"])
def test_outputs_of_state_dependent_noise(observations: str, name: str) -> None:
    policy, networks, seen = make_policy(observations, "Box", sde=True, **SDE[name])
    assert not networks.standard
    z = outputs(networks, seen)
    for ours, theirs in zip(described(z, "Box"), truth(policy, seen), strict=True):
        torch.testing.assert_close(ours, theirs)
    policy.reset_noise(6)
    check_values_and_probabilities(policy, networks, seen, z)


def check_values_and_probabilities(policy: ActorCriticPolicy, networks: Networks, seen: Any, z: Tensor) -> None:
    with torch.no_grad():
        actions, values, log_prob = policy(seen)
        draws = draws_of(policy, actions.reshape(6, -1).float())  # as a rollout buffer returns them
        raw, entropy = networks.family.log_prob(z, draws), policy.get_distribution(seen).entropy()
        ours = raw
        if policy.squash_output:  # a change of variables that the parameters have no part in
            ours = raw - torch.log(1 - draws.tanh() ** 2 + 1e-6).sum(1)
            assert entropy is None
        else:
            torch.testing.assert_close(networks.family.entropy(z), entropy)
        torch.testing.assert_close(ours, log_prob, rtol=1e-4, atol=1e-4)
        assert float(log_prob.std()) > 2e-3
        torch.testing.assert_close(networks.values(arrays(seen)), policy.predict_values(seen))
        torch.testing.assert_close(networks.assess(arrays(seen), actions.reshape(6, -1).numpy()), (values, raw))
        assert float(values.std()) > 2e-3


@pytest.mark.parametrize("actions", [name for name in ACTIONS if name != "Box, a matrix"])
def test_draws_follow_the_policys_distribution(actions: str) -> None:
    """Means of 20,000 draws for one observation; and every draw is an action."""
    policy, networks, seen = make_policy("vector", actions)
    torch.manual_seed(0)
    n = 20_000
    draws = torch.as_tensor(draw(networks, arrays(seen[:1].expand(n, -1))))
    first, *more = truth(policy, seen[:1])
    if actions == "Box":
        torch.testing.assert_close(draws.mean(0), first[0], atol=0.05, rtol=0)
        torch.testing.assert_close(draws.std(0), more[0][0], atol=0, rtol=0.03)
        return
    assert all(policy.action_space.contains(draw.numpy().astype(policy.action_space.dtype)) for draw in draws[:20])
    if actions == "MultiBinary":
        torch.testing.assert_close(draws.mean(0), first[0], atol=0.02, rtol=0)
        return
    for column, probabilities in zip(draws.reshape(n, -1).T, [first, *more], strict=True):
        frequencies = torch.bincount(column.long(), minlength=probabilities.shape[1]) / n
        torch.testing.assert_close(frequencies, probabilities[0], atol=0.02, rtol=0)


def ids(parameters: Any) -> set[int]:
    return {id(p) for p in parameters}


@pytest.mark.parametrize(("observations", "actions"), CASES)
def test_every_parameter_is_the_actors_or_the_critics(observations: str, actions: str) -> None:
    policy, networks, _ = make_policy(observations, actions)
    check_split(policy, networks)
    assert not ids(networks.actor_parameters) & ids(policy.vf_features_extractor.parameters())


def check_split(policy: ActorCriticPolicy, networks: Networks) -> None:
    actor, critic = ids(networks.actor_parameters), ids(networks.critic_parameters)
    assert not actor & critic
    assert actor | critic == ids(policy.parameters())
    assert len(networks.actor_parameters) + len(networks.critic_parameters) == len(actor | critic), "none twice"
    assert ids(policy.mlp_extractor.policy_net.parameters()) | ids(policy.action_net.parameters()) <= actor
    assert ids(policy.mlp_extractor.value_net.parameters()) | ids(policy.value_net.parameters()) <= critic
    if hasattr(policy, "log_std"):
        assert id(policy.log_std) in actor


@pytest.mark.parametrize("name", SDE)
def test_state_dependent_noise_is_the_actors(name: str) -> None:
    check_split(*make_policy("vector", "Box", sde=True, **SDE[name])[:2])


@pytest.mark.parametrize("sde", [False, True])
def test_shared_features_are_the_actors(sde: bool) -> None:
    policy, networks, _ = make_policy("image", "Box", ActorCriticCnnPolicy, sde)
    assert policy.pi_features_extractor is policy.vf_features_extractor
    check_split(policy, networks)
    assert ids(policy.features_extractor.parameters()) <= ids(networks.actor_parameters)


class Idle(ACKTRPolicy):
    """A user's policy with a parameter that nothing depends on, and one that is not trained."""

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        self.idle = nn.Parameter(torch.zeros(3))
        self.mlp_extractor.policy_net[0].bias.requires_grad_(False)

    def get_distribution(self, obs: Any) -> Any:
        return super().get_distribution(obs)


def test_what_neither_uses_belongs_to_neither() -> None:
    policy, networks, seen = make_policy("vector", "Box", Idle)
    assert not networks.standard
    neither = [policy.idle, policy.mlp_extractor.policy_net[0].bias]
    owned = ids(networks.actor_parameters) | ids(networks.critic_parameters)
    assert owned == ids(policy.parameters()) - ids(neither)
    check_values_and_probabilities(policy, networks, seen, outputs(networks, seen))


class Doubled(ACKTRPolicy):
    """A user's policy that computes something else from the same layers, and shows other values than it predicts."""

    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Any:
        return self.action_dist.proba_distribution(action_logits=2 * self.action_net(latent_pi))

    def predict_values(self, obs: Any) -> Tensor:
        return 5 + super().predict_values(obs)

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        distribution = self.get_distribution(obs)
        actions = distribution.get_actions(deterministic)
        return actions, 2 * self.predict_values(obs), distribution.log_prob(actions)


def test_a_users_policy_is_taken_at_its_word() -> None:
    policy, networks, seen = make_policy("vector", "Discrete", Doubled)
    z = outputs(networks, seen)
    torch.testing.assert_close(z.softmax(-1), truth(policy, seen)[0])
    check_values_and_probabilities(policy, networks, seen, z)
    check_split(policy, networks)


class Normed(BaseFeaturesExtractor):
    """Features with a running average."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space, space.shape[0])
        self.norm = nn.BatchNorm1d(space.shape[0])

    def forward(self, observations: Tensor) -> Tensor:
        return self.norm(observations)


def test_looking_moves_no_running_average() -> None:
    policy, networks, _ = make_policy("vector", "Box", features_extractor_class=Normed)
    policy.set_training_mode(True)
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    again = Networks(policy)
    assert all(torch.equal(value, before[key]) for key, value in policy.state_dict().items())
    assert policy.training
    assert again.actor.training
    assert not networks.fixed_features, "a batch's statistics are part of the network"


def test_a_distribution_of_the_users_own_is_refused() -> None:
    class Strange(CategoricalDistribution):
        pass

    policy, *_ = make_policy("vector", "Discrete")
    policy.action_dist = Strange(4)
    assert Networks(policy).standard, "SB3's kind under another name"
    policy.action_dist = object()
    with pytest.raises(ValueError, match="ACKTR knows no geometry of object: its actions must be SB3's own kinds"):
        Networks(policy)

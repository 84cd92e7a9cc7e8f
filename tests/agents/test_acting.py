"""The sampler of rollouts against torch's own actor, and against the Gaussian that it claims to draw from."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from scipy import stats
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn
from toy_envs import ACTIONS, OBSERVATIONS, make_world, policy_name, small

from geonpg.agents import ACKTR, ACKTRPolicy
from geonpg.agents.acting import Act, draw, numpy_mean, sampler, simple_layers
from geonpg.envs import MujocoVecEnv, Normalize

NO_NOISE = -40.0  # a log std that single precision does not see beside a mean


def make(
    observations: str = "vector", actions: str = "Box", policy: Any = None, sde: bool = False, **own: Any
) -> ACKTR:
    return ACKTR(
        policy or policy_name(observations), make_world(observations, actions), n_steps=8, use_sde=sde, seed=0,
        policy_kwargs={**small(observations), **own},
    )  # fmt: skip


def sampler_of(agent: ACKTR, n_steps: int = 1, n_envs: int = 3) -> Act:
    return sampler(agent.networks, n_steps, cast(VecEnv, SimpleNamespace(num_envs=n_envs)))


def views(n: int = 3, seed: int = 0) -> NDArray[np.float64]:
    """Observations of the vector kind."""
    return np.random.default_rng(seed).uniform(-3, 3, size=(n, 4))


def as_tensors(seen: Any) -> Any:
    return {k: torch.as_tensor(v) for k, v in seen.items()} if isinstance(seen, dict) else torch.as_tensor(seen)


def torch_mean(agent: ACKTR, observations: Any) -> NDArray[Any]:
    with torch.no_grad():
        return agent.policy.get_distribution(as_tensors(observations)).distribution.mean.numpy()


def is_fast(agent: ACKTR) -> bool:
    """Can this policy be evaluated without torch?"""
    return simple_layers(agent.networks) is not None


def assert_acts_like_torch(agent: ACKTR) -> None:
    """Without noise, actions are torch's means; these are far from zero and from each other."""
    seen = views(50)
    with torch.no_grad():
        agent.policy.log_std.fill_(NO_NOISE)
    actions, means = sampler_of(agent, 1, 50)(seen), torch_mean(agent, seen)
    assert actions.dtype == np.float32
    assert means.std(0).min() > 0.05
    assert np.abs(actions - means).max() < 1e-6


@pytest.mark.parametrize("hidden", [[], [16], [32, 8]], ids=str)
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_numpy_computes_torchs_mean(activation: type[nn.Module], hidden: list[int]) -> None:
    agent = make(net_arch=hidden, activation_fn=activation)
    assert is_fast(agent)
    assert_acts_like_torch(agent)


class Layers(ACKTRPolicy):
    """A user's hidden layers."""

    layers: tuple[nn.Module, ...]

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        self.mlp_extractor.policy_net = nn.Sequential(*self.layers)


def with_layers(*layers: nn.Module) -> ACKTR:
    return make(policy=type("Own", (Layers,), {"layers": layers}))


def test_a_layer_without_bias() -> None:
    agent = with_layers(nn.Linear(4, 8, bias=False), nn.Tanh())
    assert is_fast(agent)
    assert_acts_like_torch(agent)


def test_layers_in_a_row_and_activations_that_are_none() -> None:
    """Two linear layers with nothing between them are two layers; of what is no such chain torch takes care."""
    chain = with_layers(nn.Linear(4, 6), nn.Linear(6, 8), nn.ReLU())
    assert is_fast(chain)
    assert_acts_like_torch(chain)
    for layers in ((nn.Linear(4, 8), nn.Tanh(), nn.ReLU()), (nn.Tanh(), nn.Linear(4, 8))):
        agent = with_layers(*layers)
        assert not is_fast(agent)
        assert_acts_like_torch(agent)


@pytest.mark.parametrize("wrapped", [False, True])
def test_native_environments_compute_the_mean_as_their_rollouts_do(wrapped: bool) -> None:
    """And torch's, nearly."""
    venv: VecEnv = MujocoVecEnv("Hopper-v4", 5, threads=1)
    venv = Normalize(venv) if wrapped else venv
    agent = ACKTR("MlpPolicy", venv, n_steps=8, seed=0, policy_kwargs={"log_std_init": NO_NOISE, "ortho_init": False})
    layers, seen = simple_layers(agent.networks), np.random.default_rng(0).normal(size=(5, 11))
    assert layers is not None
    actions = sampler(agent.networks, 1, venv)(seen)
    assert np.array_equal(actions, cast(Any, venv).policy_mean(layers)(seen))
    assert np.abs(actions - torch_mean(agent, seen)).max() < 1e-6
    assert actions.std() > 0.05


def test_noise_has_the_policys_deviation() -> None:
    """Per component, independent over steps, environments and components."""
    agent, std = make(), np.array([0.3, 1.7])
    with torch.no_grad():
        agent.policy.log_std.copy_(torch.as_tensor(std).log())
    torch.manual_seed(0)
    act, seen = sampler_of(agent, 1000, 20), views(20)
    noise = np.stack([act(seen) for _ in range(1000)]) - torch_mean(agent, seen)
    assert noise.std((0, 1)) == pytest.approx(std, rel=0.02)
    assert stats.kstest((noise / std).ravel(), "norm").pvalue > 0.01
    columns = (noise / std).reshape(1000, -1)
    between = np.corrcoef(columns.T) - np.eye(columns.shape[1])
    assert np.abs(between).max() < 0.2
    assert abs(np.mean(columns[1:] * columns[:-1])) < 0.03


def test_the_seed_of_torch_decides() -> None:
    def draws(seed: int) -> NDArray[Any]:
        torch.manual_seed(seed)
        act = sampler_of(agent, 4)
        return np.stack([act(views()) for _ in range(4)])

    agent = make()
    assert np.array_equal(draws(1), draws(1))
    assert not np.isclose(draws(1), draws(2)).any()
    one = draws(1)
    assert not np.isclose(one[1:], one[:-1]).any()


def test_observations_stay_as_they_were_and_actions_are_new_memory() -> None:
    """A collector keeps both in its buffer."""
    for hidden in ([], [8]):
        agent, seen = make(net_arch=hidden, activation_fn=nn.ReLU), views()
        act = sampler_of(agent, 2)
        first = act(seen)
        kept = first.copy()
        act(seen + 1)
        assert np.array_equal(seen, views())
        assert np.array_equal(first, kept)


def test_it_follows_the_optimiser() -> None:
    """Updates, and parameters that were loaded, change what the next sampler draws, and its layers at once."""
    agent = make()
    layers, x = simple_layers(agent.networks), views()
    assert layers is not None
    view = numpy_mean(layers)
    before = view(x)
    agent.learn(48)
    assert agent.optimizer.steps == 2
    assert not np.allclose(view(x), before, atol=1e-4)
    assert np.allclose(view(x), torch_mean(agent, x), atol=1e-6)
    assert_acts_like_torch(agent)
    agent.policy.load_state_dict(make(log_std_init=NO_NOISE).policy.state_dict())
    assert np.allclose(view(x), before)
    assert_acts_like_torch(agent)


class Warped(ACKTRPolicy):
    """A user's policy: the same layers, other means."""

    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Any:
        return self.action_dist.proba_distribution(self.action_net(latent_pi) ** 3, self.log_std)


class Squares(BaseFeaturesExtractor):
    """A user's features, with nothing to learn."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space, space.shape[0])

    def forward(self, observations: Tensor) -> Tensor:
        return observations**2


class Bend(nn.Tanh):
    """A user's activation, which is not tanh any more."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


GAUSSIAN: dict[str, dict[str, Any]] = {
    "a matrix of actions": {"actions": "Box, a matrix"},
    **{kind: {"observations": kind} for kind in OBSERVATIONS},
    "ELU": {"activation_fn": nn.ELU},
    "a user's activation": {"activation_fn": Bend},
}
FAST = ("vector", "a matrix of actions")


@pytest.mark.parametrize("name", GAUSSIAN)
def test_every_gaussian_policy_draws_around_its_mean(name: str) -> None:
    """Mean plus std times torch's own normal draws, on the fast path and on the other; numpy where it can."""
    agent = make(**GAUSSIAN[name], log_std_init=-0.4)
    assert is_fast(agent) == (name in FAST)
    assert agent.env is not None
    seen = agent.env.reset()
    torch.manual_seed(3)
    act = sampler_of(agent, 2)
    actions = np.stack([act(seen), act(seen)])
    torch.manual_seed(3)
    noise = torch.randn(actions.shape).numpy() * np.exp(-0.4)
    assert np.abs(actions - torch_mean(agent, seen) - noise).max() < 1e-5


OTHERS: dict[str, dict[str, Any]] = {
    **{actions: {"actions": actions} for actions in ACTIONS if not actions.startswith("Box")},
    "gSDE": {"sde": True},
    "squashed gSDE": {"sde": True, "squash_output": True},
    "a user's policy": {"policy": Warped},
}


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_policy_acts_by_torch(name: str) -> None:
    """The same seed gives the policy's own draws to the last bit."""
    agent = make(**OTHERS[name])
    assert agent.env is not None
    seen = agent.env.reset()
    torch.manual_seed(3)
    actions = sampler_of(agent, 1)(seen)
    torch.manual_seed(3)
    assert np.array_equal(actions, draw(agent.networks, seen))
    assert len(actions) == 3


def test_a_users_policy_keeps_its_own_mean() -> None:
    agent, seen = make(policy=Warped, log_std_init=NO_NOISE), views()
    assert np.abs(sampler_of(agent)(seen) - torch_mean(agent, seen)).max() < 1e-6


def test_features_of_the_users_own_are_not_skipped() -> None:
    agent, seen = make(features_extractor_class=Squares, log_std_init=NO_NOISE), views()
    assert agent.networks.fixed_features
    assert np.abs(sampler_of(agent)(seen) - torch_mean(agent, seen)).max() < 1e-6


def test_an_activation_that_stands_twice_is_done_twice() -> None:
    """One object between all layers."""
    tanh = nn.Tanh()
    agent = with_layers(nn.Linear(4, 8), tanh, nn.Linear(8, 8), tanh)
    assert agent.networks.standard
    assert_acts_like_torch(agent)

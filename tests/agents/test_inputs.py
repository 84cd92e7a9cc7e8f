"""The networks keep what they make of an observation while its normalisation moves."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecFrameStack, VecNormalize
from torch import nn
from toy_envs import make_world, many

from geonpg.agents import ACKTR
from geonpg.agents.inputs import InputScale, follow, input_scale
from geonpg.envs import Frames, Normalize


class CalmingDown(gymnasium.Env[Any, Any]):
    """Observations around 5 whose spread falls from 1 to a tenth, as where a task has been solved; no reward."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,))
    action_space = spaces.Box(-1, 1, (2,))

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observe(), {}

    def observe(self) -> Any:
        spread = 1.0 if self.steps < 200 else 0.1
        return (5 + spread * self.np_random.normal(size=3)).astype(np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.observe(), 0.0, False, self.steps % 50 == 0, {}


WRAPPERS = {
    "ours": Normalize,
    "SB3's": VecNormalize,
    "ours, two frames": lambda venv: Frames(Normalize(venv), 2),
    "SB3's, two frames": lambda venv: VecFrameStack(VecNormalize(venv), 2),
}


def outputs(agent: ACKTR, raw: Any) -> torch.Tensor:
    """What policy and critic make of raw observations [n, 3], in every frame."""
    scale = input_scale(agent.get_env())
    assert scale is not None
    frames = agent.observation_space.shape[0] // 3
    seen = torch.as_tensor(np.tile((raw - scale.mean) / scale.deviation, frames)).float()
    with torch.no_grad():
        return torch.cat([agent.networks.actor(seen), agent.networks.critic(seen)], -1)


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
def test_A9_a_policy_that_makes_no_step_stays_what_it_is(wrapper: Any) -> None:
    env = wrapper(many(CalmingDown, 4))
    kwargs = {"net_arch": [8], "ortho_init": False}
    agent = ACKTR(
        "MlpPolicy", env, n_steps=25, target_kl=1e-12, critic_learning_rate=1e-12, policy_kwargs=kwargs, seed=0
    )
    agent.learn(800)  # after which the spread falls
    raw = 5 + 0.5 * np.random.default_rng(0).normal(size=(16, 3))
    before, scale = outputs(agent, raw), input_scale(env)
    agent.learn(4000, reset_num_timesteps=False)
    after = input_scale(env)
    assert scale is not None
    assert after is not None
    assert (after.deviation < 0.7 * scale.deviation).all()  # the same observation reaches the networks as other numbers
    assert (outputs(agent, raw) - before).abs().max() < 2e-4


@pytest.mark.parametrize("frames", [1, 3])
def test_layers_compute_the_same_of_raw_observations(frames: int) -> None:
    generator = np.random.default_rng(0)
    mean, deviation = generator.normal(size=4), generator.uniform(0.5, 2, 4)
    before = InputScale(mean, deviation)
    after = InputScale(mean + 0.05 * deviation, deviation * np.array([0.95, 1.0, 1.03, 1.09]))
    layer = nn.Linear(4 * frames, 5).double()
    raw = generator.normal(size=(7, frames, 4))
    seen = [torch.as_tensor(((raw - each.mean) / each.deviation).reshape(7, -1)) for each in (before, after)]
    expected = layer(seen[0]).detach()
    follow([layer], (before, after))
    assert torch.allclose(layer(seen[1]), expected, rtol=0, atol=1e-13)


def test_statistics_that_have_only_begun_are_not_followed() -> None:
    """A number that stood still at first has no deviation; a weight in proportion to it would explode."""
    before = InputScale(np.zeros(2), np.array([1e-4, 1.0]))
    after = InputScale(np.array([0.3, 0.05]), np.array([0.5, 1.05]))
    layer = nn.Linear(2, 3).double()
    weight = layer.weight.detach().clone()
    follow([layer], (before, after))
    assert torch.equal(layer.weight[:, 0], weight[:, 0])
    assert torch.allclose(layer.weight[:, 1], 1.05 * weight[:, 1])


def test_frozen_layers_and_other_inputs_are_left_alone() -> None:
    before, after = (InputScale(np.zeros(2), np.full(2, x)) for x in (1.0, 1.05))
    frozen, other = nn.Linear(2, 3).requires_grad_(False), nn.Linear(3, 3)
    kept = [layer.weight.clone() for layer in (frozen, other)]
    follow([frozen, other], (before, after))
    assert all(torch.equal(layer.weight, weight) for layer, weight in zip((frozen, other), kept, strict=True))


def plain(observations: str) -> VecEnv:
    return make_world(observations)


@pytest.mark.parametrize(
    "env",
    [
        lambda: plain("vector"),
        lambda: Normalize(plain("vector"), observations=False),
        lambda: VecNormalize(plain("vector"), norm_obs=False),
        lambda: VecNormalize(plain("dictionary"), norm_obs_keys=["place"]),
    ],
    ids=["none", "ours, rewards only", "SB3's, rewards only", "SB3's, a dictionary"],
)
def test_environments_without_one_normalisation_have_no_scale(env: Any) -> None:
    assert input_scale(env()) is None


def test_a_matrix_of_observations_is_followed_in_rows() -> None:
    scale = input_scale(VecNormalize(plain("matrix")))
    assert scale is not None
    assert scale.mean.shape == scale.deviation.shape == (4,)


class Doubled(FlattenExtractor):
    """Features that are as many as two observations and are none."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space)
        self._features_dim *= 2

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return torch.cat([observations, observations.square()], -1)


class Appending(VecEnvWrapper):
    """As many numbers again behind every observation."""

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv, spaces.Box(-np.inf, np.inf, (2 * venv.observation_space.shape[0],)))

    def reset(self) -> Any:
        return np.tile(self.venv.reset(), 2) ** 2

    def step_wait(self) -> Any:
        observations, *rest = self.venv.step_wait()
        return np.tile(observations, 2) ** 2, *rest


def test_only_layers_that_see_observations_follow() -> None:
    env = Normalize(make_world())
    assert len(ACKTR("MlpPolicy", env).networks.first_layers) == 2
    other = ACKTR("MlpPolicy", env, policy_kwargs={"features_extractor_class": Doubled})
    assert other.networks.first_layers == []
    assert input_scale(Appending(env)) is None


def test_a_rollout_that_a_callback_ends_is_followed_by_the_next_update() -> None:
    env = Normalize(many(CalmingDown, 4))
    agent = ACKTR("MlpPolicy", env, n_steps=25, target_kl=1e-12, critic_learning_rate=1e-12, seed=0).learn(800)
    raw = 5 + 0.5 * np.random.default_rng(0).normal(size=(16, 3))
    before = outputs(agent, raw)
    agent.learn(100, reset_num_timesteps=False, callback=lambda seen, _: seen["n_steps"] < 20)
    assert agent.num_timesteps == 884
    assert (outputs(agent, raw) - before).abs().max() > 1e-3
    agent.learn(100, reset_num_timesteps=False)
    assert (outputs(agent, raw) - before).abs().max() < 1e-4

"""Small environments with any spaces, for tests of the agent."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-3, 3, (4,), np.float64),
    "matrix": spaces.Box(-3, 3, (2, 2), np.float32),
    "discrete": spaces.Discrete(5),
    "image": spaces.Box(0, 255, (3, 36, 36), np.uint8),
    "dictionary": spaces.Dict({"place": spaces.Box(-3, 3, (4,), np.float32), "room": spaces.Discrete(3)}),
    "dictionary with an image": spaces.Dict(
        {"place": spaces.Box(-3, 3, (4,), np.float32), "view": spaces.Box(0, 255, (3, 36, 36), np.uint8)}
    ),
}

ACTIONS: dict[str, spaces.Space[Any]] = {
    "Box": spaces.Box(np.array([-0.5, -2], np.float32), np.array([1, 0.3], np.float32)),
    "Box, a matrix": spaces.Box(-1, 1, (2, 2), np.float32),
    "Discrete": spaces.Discrete(4),
    "MultiDiscrete": spaces.MultiDiscrete([2, 5]),
    "MultiBinary": spaces.MultiBinary(3),
}


class World(gymnasium.Env[Any, Any]):
    """Random observations; the reward is the mean of the action; every third episode ends by a time limit.

    `received` are the actions as they came.
    """

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = deepcopy(observation_space), action_space
        self.steps = self.episodes = 0
        self.received: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.received.append(np.array(action))
        over = self.steps == 2 + self.episodes % 3
        cut_off = over and self.episodes % 3 == 0
        return self.observation_space.sample(), float(np.mean(action)), over and not cut_off, cut_off, {}


def make_world(observations: str = "vector", actions: str = "Box", n_envs: int = 3, seed: int = 0) -> VecEnv:
    """`n_envs` worlds in SB3's own vector environment."""
    return many(lambda: World(OBSERVATIONS[observations], ACTIONS[actions]), n_envs, seed)


def many(make: Callable[[], gymnasium.Env[Any, Any]], n_envs: int = 3, seed: int = 0) -> VecEnv:
    return make_vec_env(make, n_envs, seed=seed)


def policy_name(observations: str) -> str:
    """SB3's name of the policy for a kind of observation."""
    if observations.startswith("dictionary"):
        return "MultiInputPolicy"
    return "CnnPolicy" if observations == "image" else "MlpPolicy"


def small(observations: str) -> dict[str, Any]:
    """`policy_kwargs` of a small network whose outputs differ from case to case."""
    arch: dict[str, Any] = {"net_arch": [8], "ortho_init": False}
    if observations == "image":
        arch["features_extractor_kwargs"] = {"features_dim": 8}
    if observations == "dictionary with an image":
        arch["features_extractor_kwargs"] = {"cnn_output_dim": 8}
    return arch

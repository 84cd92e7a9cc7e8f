"""The environments that we step ourselves, gymnasium's originals, and actions for both."""

import warnings
from typing import Any

import gymnasium
import numpy as np

from geonpg.envs import MujocoVecEnv

NAMES = (
    "HalfCheetah",
    "Hopper",
    "Walker2d",
    "Reacher",
    "InvertedPendulum",
    "InvertedDoublePendulum",
    "Swimmer",
    "Ant",
    "Humanoid",
    "HumanoidStandup",
)
IDS = [f"{name}-{version}" for name in NAMES for version in ("v4", "v5")]


def gym_env(env_id: str, **kwargs: Any) -> gymnasium.Env:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(env_id, disable_env_checker=True, **kwargs)


def actions_for(venv: MujocoVecEnv, steps: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    """Random actions a little beyond the bounds, where MuJoCo clamps: [steps, n, actions]."""
    low, high = venv.action_space.low, venv.action_space.high
    rng = np.random.default_rng(seed)
    return 1.1 * rng.uniform(low, high, size=(steps, venv.num_envs, *low.shape)).astype(dtype)

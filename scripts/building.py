"""From settings to environments, an agent, and evaluations of it."""

import ctypes
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from torch import nn

from geonpg.agents import ACKTR
from geonpg.configs import Settings
from geonpg.envs import Frames, Normalize, ScaleActions, make_vec, quietly

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}

# What `ACKTR` takes under the settings' own names.
ARGUMENTS = (
    "n_steps", "gamma", "gae_lambda", "method", "solver", "alpha", "calibrate", "learning_rate", "target_kl", "damping",
    "gradient_averaging", "cg_iterations", "factor_averaging", "inverse_every", "ent_coef", "normalize_advantage",
    "critic_updates", "critic_learning_rate", "critic_solver", "critic_cg_iterations", "critic_damping",
    "critic_target_kl", "critic_gradient_averaging", "critic_lambda",
)  # fmt: skip

EVALUATION_SEED = 1_000_000  # far from the seeds of training


def make_env(settings: Settings, env_id: str, n_envs: int, seed: int) -> VecEnv:
    """Environments as a run sees them."""
    with quietly():
        venv = make_vec(env_id, n_envs, seed=seed, threads=settings.env_threads)
    if settings.scale_actions:
        venv = ScaleActions(venv)
    if settings.normalize_observations or settings.normalize_rewards:
        venv = Normalize(
            venv,
            observations=settings.normalize_observations,
            rewards=settings.normalize_rewards,
            gamma=settings.gamma,
            clip=settings.clip,
        )
    return Frames(venv, settings.frames) if settings.frames > 1 else venv


def make_agent(settings: Settings, env: VecEnv, seed: int, device: str = "cpu") -> ACKTR:
    policy_kwargs: dict[str, Any] = {
        "net_arch": {"pi": list(settings.hidden), "vf": list(settings.critic_hidden)},
        "activation_fn": ACTIVATIONS[settings.activation],
        "critic_activation_fn": ACTIVATIONS[settings.critic_activation],
        "log_std_init": settings.log_std_init,
        "ortho_init": settings.ortho_init,
    }
    values = asdict(settings)
    chosen = {name: values[name] for name in ARGUMENTS}
    return ACKTR("MlpPolicy", env, seed=seed, device=device, policy_kwargs=policy_kwargs, **chosen)


def normalization_of(env: VecEnv) -> Normalize | None:
    """The normalisation among an environment's wrappers."""
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, Normalize):
            return env
        env = env.venv
    return None


def evaluate(
    model: BaseAlgorithm | BasePolicy, settings: Settings, env_id: str, episodes: int, like: Normalize | None, seed: int
) -> NDArray[np.float64]:
    """Returns of deterministic episodes on seeds of their own: [episodes]. Always the same for the same policy."""
    env = make_env(settings, env_id, episodes, EVALUATION_SEED + seed)
    own = normalization_of(env)
    if own is not None and like is not None:
        own.training = False
        own.observation_moments.set_state(like.observation_moments.get_state())
    returns, left = np.full(episodes, np.nan), episodes
    observations: Any = env.reset()
    while left:
        actions, _ = model.predict(observations, deterministic=True)
        observations, _, dones, infos = env.step(actions)
        for i in np.flatnonzero(dones):
            if np.isnan(returns[i]):
                returns[i], left = infos[i]["episode"]["r"], left - 1
    env.close()
    return returns


def keep_memory() -> None:
    """Ask glibc not to return memory to the system after every update, only to ask for it again."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            libc.mallopt(option, 1 << 28)


def prepare(settings: Settings) -> None:
    """This process, for a run: the number of torch's threads decides the last bits of a sum."""
    torch.set_num_threads(settings.torch_threads)
    keep_memory()

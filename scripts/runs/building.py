"""Make environments and agents from settings."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from inspect import signature
from typing import Any

import gymnasium
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecTransposeImage
from torch import nn

from geonpg.agents import ACKTR
from geonpg.configs import FIELDS, Settings
from geonpg.envs import Frames, Normalize, ScaleActions, is_native, make_vec
from geonpg.envs.scaling import has_numbers
from geonpg.envs.spaces import is_large_image
from geonpg.errors import Refused
from geonpg.kfac import ALONE, Ranks
from geonpg.scripts.runs.guard import Guarded, making

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}

# What `ACKTR` takes under the settings' own names.
ARGUMENTS = tuple(name for name in signature(ACKTR).parameters if name in FIELDS)

RAW = Settings(normalize_observations=False, normalize_rewards=False)  # an environment without our wrappers
CONTINUOUS_ONLY = ("scale_actions", "log_std_init", "critic_extras")


def check_actions(env_id: str, given: Mapping[str, Any]) -> None:
    """Refuse settings of continuous actions where actions are discrete, because they would do nothing."""
    moot = [key for key in CONTINUOUS_ONLY if given.get(key, FIELDS[key].default) != FIELDS[key].default]
    if not moot or env_id not in gymnasium.registry:
        return
    with making(env_id):
        env = gymnasium.make(env_id)
    env.close()
    if not isinstance(env.action_space, spaces.Box):
        raise Refused(f"{moot[0]} is for continuous actions, and {env_id} takes {env.action_space}")


def make_env(settings: Settings, env_id: str, n_envs: int, seed: int, **keywords: Any) -> VecEnv:
    """Make the environments of a run, with all its wrappers; `keywords` go to the environment itself."""
    with making(env_id):
        venv = make_vec(env_id, n_envs, seed=seed, threads=settings.env_threads, **keywords)
    if not is_native(env_id):  # ours have been checked
        venv = Guarded(channels_first(venv), env_id)
    return wrapped(settings, venv)


def wrapped(settings: Settings, venv: VecEnv) -> VecEnv:
    """Wrap environments as the settings say."""
    if settings.scale_actions:
        venv = ScaleActions(venv)
    scales_observations = settings.normalize_observations and has_numbers(venv.observation_space)
    if scales_observations or settings.normalize_rewards:
        venv = Normalize(
            venv,
            observations=scales_observations,
            rewards=settings.normalize_rewards,
            gamma=settings.gamma,
            clip=settings.clip,
        )
    return Frames(venv, settings.frames) if settings.frames > 1 else venv


def channels_first(venv: VecEnv) -> VecEnv:
    """Move image channels to the front, as torch expects; SB3 would do so outside the wrappers whose state we save."""
    seen = venv.observation_space
    for part in seen.values() if isinstance(seen, spaces.Dict) else [seen]:
        if isinstance(part, spaces.Box) and is_image_space(part) and not is_image_space_channels_first(part):
            return VecTransposeImage(venv)
    return venv


def policy_for(space: spaces.Space[Any], weights: Collection[str] | None = None) -> str:
    """Return SB3's name of the policy for these observations.

    weights: names of the weights it must have; models of an earlier version have no convolutions.
    """
    if isinstance(space, spaces.Dict):
        return "MultiInputPolicy"
    looks = weights is None or any(".cnn." in name for name in weights)
    return "CnnPolicy" if looks and is_large_image(space) else "MlpPolicy"


def policy_kwargs(settings: Settings) -> dict[str, Any]:
    """Return the `policy_kwargs` of SB3 for these settings."""
    return {
        "net_arch": {"pi": list(settings.hidden), "vf": list(settings.critic_hidden)},
        "activation_fn": ACTIVATIONS[settings.activation],
        "critic_activation_fn": ACTIVATIONS[settings.critic_activation],
        "log_std_init": settings.log_std_init,
        "ortho_init": settings.ortho_init,
        "unit_rows": settings.unit_rows,
        "critic_extras": settings.critic_extras,
    }


def make_agent(
    settings: Settings,
    env: VecEnv,
    seed: int,
    device: str = "cpu",
    ranks: Ranks = ALONE,
    weights: Collection[str] | None = None,
) -> ACKTR:
    """Make an agent with the policy that fits its environments; `weights` as in `policy_for`."""
    values, network, policy = asdict(settings), policy_kwargs(settings), policy_for(env.observation_space, weights)
    chosen = {name: values[name] for name in ARGUMENTS}
    return ACKTR(policy, env, seed=seed, device=device, policy_kwargs=network, ranks=ranks, **chosen)


def normalization_of(env: VecEnv) -> Normalize | None:
    """Return the Normalize among an environment's wrappers, or None."""
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, Normalize):
            return env
        env = env.venv
    return None


def silence(agent: BaseAlgorithm) -> None:
    """Give the agent a logger that writes nothing: without one, every call of `learn` makes a folder."""
    agent.set_logger(Logger(folder=None, output_formats=[]))

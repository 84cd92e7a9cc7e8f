"""From settings to environments, an agent, and evaluations of it."""

from geonpg.errors import Refused
import ctypes
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecTransposeImage
from torch import nn

from geonpg.agents import ACKTR
from geonpg.configs import FIELDS, Settings
from geonpg.envs import Frames, Normalize, ScaleActions, is_native, make_vec
from geonpg.envs.normalize import has_numbers
from geonpg.envs.spaces import is_large_image
from geonpg.kfac import Ranks
from geonpg.kfac.ranks import ALONE
from geonpg.scripts.runs.guard import Guarded, making

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}

# What `ACKTR` takes under the settings' own names.
ARGUMENTS = (
    "n_steps", "gamma", "gae_lambda", "method", "solver", "alpha", "calibrate", "learning_rate", "target_kl", "anneal",
    "damping", "gradient_averaging", "cautious", "cg_iterations", "factor_averaging", "factors_every", "ent_coef",
    "normalize_advantage", "advantage_floor",
    "critic_updates", "critic_learning_rate", "critic_solver", "critic_cg_iterations", "critic_damping",
    "critic_target_kl", "critic_gradient_averaging", "critic_lambda", "torch_threads",
)  # fmt: skip

RAW = Settings(normalize_observations=False, normalize_rewards=False)  # an environment without our wrappers
CONTINUOUS_ONLY = ("scale_actions", "log_std_init")

# Steps after which an evaluation ends an episode of an environment that has no time limit, and might go on for ever.
LONGEST_EPISODE = 10_000

log = logging.getLogger(__name__)
_told: set[str] = set()


def check_actions(env_id: str, given: Mapping[str, Any]) -> None:
    """Refuse a setting of continuous actions where actions are discrete: it would do nothing."""
    moot = [key for key in CONTINUOUS_ONLY if given.get(key, FIELDS[key].default) != FIELDS[key].default]
    if not moot or env_id not in gymnasium.registry:
        return
    with making(env_id):
        env = gymnasium.make(env_id)
    env.close()
    if not isinstance(env.action_space, spaces.Box):
        raise Refused(f"{moot[0]} is for continuous actions, and {env_id} takes {env.action_space}")


def make_env(settings: Settings, env_id: str, n_envs: int, seed: int, **keywords: Any) -> VecEnv:
    """Environments as a run sees them, with the environment's own keywords."""
    with making(env_id):
        venv = make_vec(env_id, n_envs, seed=seed, threads=settings.env_threads, **keywords)
    if not is_native(env_id):  # ours have been checked
        venv = Guarded(channels_first(venv), env_id)
    return wrapped(settings, venv)


def wrapped(settings: Settings, venv: VecEnv) -> VecEnv:
    """Environments with what a run's settings put between them and its agent."""
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
    """Images as torch takes them. An agent would wrap them so itself, outside of what keeps our state."""
    seen = venv.observation_space
    for part in seen.values() if isinstance(seen, spaces.Dict) else [seen]:
        if isinstance(part, spaces.Box) and is_image_space(part) and not is_image_space_channels_first(part):
            return VecTransposeImage(venv)
    return venv


def policy_for(space: spaces.Space[Any], weights: Collection[str] | None = None) -> str:
    """The policy for a kind of observation, by SB3's name; `weights`: the names of those it must have.

    An earlier version had no convolutions.
    """
    if isinstance(space, spaces.Dict):
        return "MultiInputPolicy"
    looks = weights is None or any(".cnn." in name for name in weights)
    return "CnnPolicy" if looks and is_large_image(space) else "MlpPolicy"


def policy_kwargs(settings: Settings) -> dict[str, Any]:
    """What SB3's policies take."""
    return {
        "net_arch": {"pi": list(settings.hidden), "vf": list(settings.critic_hidden)},
        "activation_fn": ACTIVATIONS[settings.activation],
        "critic_activation_fn": ACTIVATIONS[settings.critic_activation],
        "log_std_init": settings.log_std_init,
        "ortho_init": settings.ortho_init,
    }


def make_agent(
    settings: Settings,
    env: VecEnv,
    seed: int,
    device: str = "cpu",
    ranks: Ranks = ALONE,
    weights: Collection[str] | None = None,
) -> ACKTR:
    """An agent with the policy for what its environments show; `weights`: see `policy_for`."""
    values, network, policy = asdict(settings), policy_kwargs(settings), policy_for(env.observation_space, weights)
    chosen = {name: values[name] for name in ARGUMENTS}
    return ACKTR(policy, env, seed=seed, device=device, policy_kwargs=network, ranks=ranks, **chosen)


def normalization_of(env: VecEnv) -> Normalize | None:
    """The normalisation among an environment's wrappers."""
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, Normalize):
            return env
        env = env.venv
    return None


def evaluation_seed(seed: int) -> int:
    """Of a run's first evaluation episode: far from training's, and no two runs share an episode."""
    return 1_000_000 + 1000 * seed


def evaluation_env(
    settings: Settings, env_id: str, episodes: int, like: Normalize | None, seed: int, **keywords: Any
) -> VecEnv:
    """One environment per episode, on seeds of their own, with the normalisation of `like`, which stands still.

    An environment without a time limit gets one, LONGEST_EPISODE.
    """
    env = make_env(settings, env_id, episodes, evaluation_seed(seed), **keywords)
    if not has_time_limit(env):
        env.close()
        tell_of_the_limit(env_id)
        keywords["max_episode_steps"] = LONGEST_EPISODE
        env = make_env(settings, env_id, episodes, evaluation_seed(seed), **keywords)
    own = normalization_of(env)
    if own is not None and like is not None:
        own.training, own.clip, own.epsilon = False, like.clip, like.epsilon
        own.observation_moments.set_state(like.observation_moments.get_state())
    return env


def has_time_limit(env: VecEnv) -> bool:
    """Whether gymnasium ends episodes that do not end themselves."""
    (spec,) = env.get_attr("spec", indices=[0])
    return getattr(spec, "max_episode_steps", None) is not None


def tell_of_the_limit(env_id: str) -> None:
    if env_id not in _told:
        _told.add(env_id)
        limit = f"evaluations end its episodes after {LONGEST_EPISODE} steps"
        log.warning(f"{env_id} has no time limit: {limit}; register it with max_episode_steps for another one")


def play(
    model: PolicyPredictor, env: VecEnv, deterministic: bool = True, watch: Callable[[], None] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns and lengths of every environment's first episode: [n] each. `watch` is called before every step."""
    returns, lengths = np.full(env.num_envs, np.nan), np.zeros(env.num_envs, dtype=np.int64)
    observations: Any = env.reset()
    memory, dones = None, np.ones(env.num_envs, dtype=bool)  # of a recurrent policy, which each episode begins anew
    while not lengths.all():
        if watch is not None:
            watch()
        actions, memory = model.predict(observations, memory, dones, deterministic)
        observations, _, dones, infos = env.step(actions)
        for i in np.flatnonzero(dones):
            if not lengths[i]:
                returns[i], lengths[i] = infos[i]["episode"]["r"], infos[i]["episode"]["l"]
    return returns, lengths


def evaluate(
    model: PolicyPredictor,
    settings: Settings,
    env_id: str,
    episodes: int,
    like: Normalize | None,
    seed: int,
    watch: Callable[[], None] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns and lengths of deterministic episodes: [episodes] each. Always the same for the same policy."""
    with closing(evaluation_env(settings, env_id, episodes, like, seed)) as env:
        return play(model, env, watch=watch)


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

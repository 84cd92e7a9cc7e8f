"""Evaluate a policy on deterministic episodes with fixed seeds: the same policy always gets the same returns."""

import logging
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import VecEnv

from geonpg.configs import Settings
from geonpg.envs import Normalize
from geonpg.scripts.runs.building import make_env, normalization_of

# Steps after which an evaluation ends an episode of an environment that has no time limit, and might go on for ever.
LONGEST_EPISODE = 10_000

log = logging.getLogger(__name__)
_told: set[str] = set()


def evaluation_seed(seed: int) -> int:
    """Return the seed of a run's first evaluation episode: far from training's, and not shared with other runs."""
    return 1_000_000 + 1000 * seed


def evaluation_env(
    settings: Settings, env_id: str, episodes: int, like: Normalize | None, seed: int, **keywords: Any
) -> VecEnv:
    """Make one environment per episode, each with its own seed and the frozen normalisation of `like`.

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
    """Return whether gymnasium truncates the environment's episodes."""
    (spec,) = env.get_attr("spec", indices=[0])
    return getattr(spec, "max_episode_steps", None) is not None


def tell_of_the_limit(env_id: str) -> None:
    """Warn, once per environment, that evaluations truncate its episodes."""
    if env_id not in _told:
        _told.add(env_id)
        limit = f"evaluations end its episodes after {LONGEST_EPISODE} steps"
        log.warning(f"{env_id} has no time limit: {limit}; register it with max_episode_steps for another one")


def play(
    model: PolicyPredictor, env: VecEnv, deterministic: bool = True, watch: Callable[[], None] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Play one episode in every environment; return returns and lengths, [n] each.

    watch: called before every step.
    """
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


def evaluate_policy(
    model: PolicyPredictor,
    settings: Settings,
    env_id: str,
    episodes: int,
    like: Normalize | None,
    seed: int,
    watch: Callable[[], None] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Play deterministic episodes on the evaluation seeds; return returns and lengths, [episodes] each."""
    with closing(evaluation_env(settings, env_id, episodes, like, seed)) as env:
        return play(model, env, watch=watch)

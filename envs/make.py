"""One way to make a vector environment: ours where there is one, SB3's otherwise."""

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import gymnasium
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from geonpg.errors import Refused

from .arrays import Env
from .mujoco import MujocoVecEnv
from .native import is_native, spec_of
from .spaces import checked

VERSION = re.compile(r"-v\d+$")
CLOSE = 0.75  # similarity of two names without their versions, by difflib: walker and walker2d, not rocket and broken

log = logging.getLogger(__name__)
_announced: set[str] = set()


def make_vec(
    env: str | Callable[..., Env],
    n_envs: int = 1,
    *,
    seed: int | None = None,
    threads: int = 0,
    infos: bool = False,
    **kwargs: Any,
) -> VecEnv:
    """Make a vector environment from an id, or from a function that makes an environment.

    gymnasium's MuJoCo ids and robots of your own (see `Robot`) run natively, in a `MujocoVecEnv`; anything else runs in
    SB3's DummyVecEnv with a Monitor, and a log line says so once.

    env: an id that gymnasium knows, or `module:Id`, or a function that takes `kwargs` and returns an environment.
    n_envs: environments stepped together; 8 to 64 for training.
    seed: the first environment's, the others count on from it; None for a random one.
    threads: threads of native environments, from 1 to the number of cores; 0 for one per core. Changes no result.
    infos: fill in gymnasium's own infos of native environments, for one Python call per environment and step.
    kwargs: the environment's own keywords, such as `max_episode_steps=500`.
    """
    if n_envs < 1:
        raise Refused(f"n_envs must be at least 1, not {n_envs}")
    if isinstance(env, str) and ":" in env:
        with suppress(ModuleNotFoundError, gymnasium.error.Error):  # SB3's way leads to the same, and ends there
            spec_of(env)
    if isinstance(env, str) and is_native(env):
        venv: VecEnv = MujocoVecEnv(env, n_envs, threads=threads, infos=infos, **kwargs)
        if seed is not None:
            venv.seed(seed)
        return venv
    if isinstance(env, str) and env not in gymnasium.registry and ":" not in env:
        raise Refused(unknown(env))
    name = env if isinstance(env, str) else getattr(env, "__name__", str(env))
    if name not in _announced:
        _announced.add(name)
        log.warning("%s has no native implementation: it runs in SB3's DummyVecEnv", name)
    return make_vec_env(env, n_envs, seed=seed, env_kwargs=kwargs, wrapper_class=checked)


def unknown(env_id: str) -> str:
    """Say that nobody has registered an id, and what to use instead."""
    if env_id.startswith("ALE/") or "NoFrameskip" in env_id:
        return f"unknown environment {env_id!r}: Atari's come with ale-py (pip install ale-py): name it ale_py:{env_id}"
    meant = f" (did you mean {close}?)" if (close := close_to(env_id)) else ""
    native = ", ".join(sorted(name for name in gymnasium.registry if is_native(name)))
    return f"unknown environment {env_id!r}{meant}: choose one of {native}, or any id that gymnasium knows"


def close_to(env_id: str) -> str:
    """Find the registered id that is nearly this one, of the same version or else the newest; empty if none is."""
    families: dict[str, list[str]] = {}
    for name in sorted(gymnasium.registry):
        families.setdefault(VERSION.sub("", name).lower(), []).append(name)
    version = env_id.removeprefix(VERSION.sub("", env_id))
    for family in get_close_matches(VERSION.sub("", env_id).lower(), families, n=1, cutoff=CLOSE):
        return next((name for name in families[family] if version and name.endswith(version)), families[family][-1])
    return ""

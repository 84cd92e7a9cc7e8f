"""One way to make a vector environment: ours where there is one, SB3's otherwise."""

import logging
import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import gymnasium
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from geonpg.errors import Refused

from .mujoco import TASKS, MujocoVecEnv
from .spaces import checked

VERSION = re.compile(r"-v\d+$")
CLOSE = 0.75  # two names without their versions, by difflib: walker is to walker2d, rocket is not to broken

log = logging.getLogger(__name__)
_told: set[str] = set()


def is_native(env_id: str) -> bool:
    """Is this one of gymnasium's MuJoCo environments that we step ourselves?"""
    spec = gymnasium.registry.get(env_id)
    return spec is not None and str(spec.entry_point) in TASKS and not spec.additional_wrappers


def make_vec(
    env: str | Callable[..., gymnasium.Env[Any, Any]],
    n_envs: int = 1,
    *,
    seed: int | None = None,
    threads: int = 0,
    infos: bool = False,
    **kwargs: Any,
) -> VecEnv:
    """`n_envs` copies of an environment id, or of what a function makes, with the environment's own keywords.

    gymnasium's MuJoCo ids run natively, with gymnasium's infos if `infos` asks for them; anything else runs in SB3's
    DummyVecEnv with a Monitor, and a log line says so once.
    """
    if n_envs < 1:
        raise Refused(f"n_envs must be at least 1, not {n_envs}")
    if isinstance(env, str) and is_native(env):
        venv: VecEnv = MujocoVecEnv(env, n_envs, threads=threads, infos=infos, **kwargs)
        if seed is not None:
            venv.seed(seed)
        return venv
    if isinstance(env, str) and env not in gymnasium.registry and ":" not in env:
        raise Refused(unknown(env))
    name = env if isinstance(env, str) else getattr(env, "__name__", str(env))
    if name not in _told:
        _told.add(name)
        log.warning("%s has no native implementation: it runs in SB3's DummyVecEnv", name)
    return make_vec_env(env, n_envs, seed=seed, env_kwargs=kwargs, wrapper_class=checked)


def unknown(env_id: str) -> str:
    """What to say about an id that nobody has registered."""
    if env_id.startswith("ALE/") or "NoFrameskip" in env_id:
        return f"unknown environment {env_id!r}: Atari's come with ale-py (pip install ale-py): name it ale_py:{env_id}"
    meant = f" (did you mean {close}?)" if (close := close_to(env_id)) else ""
    native = ", ".join(sorted(name for name in gymnasium.registry if is_native(name)))
    return f"unknown environment {env_id!r}{meant}: choose one of {native}, or any id that gymnasium knows"


def close_to(env_id: str) -> str:
    """The registered id that is nearly this one, of the same version or else the newest; empty if there is none."""
    families: dict[str, list[str]] = {}
    for name in sorted(gymnasium.registry):
        families.setdefault(VERSION.sub("", name).lower(), []).append(name)
    version = env_id.removeprefix(VERSION.sub("", env_id))
    for family in get_close_matches(VERSION.sub("", env_id).lower(), families, n=1, cutoff=CLOSE):
        return next((name for name in families[family] if version and name.endswith(version)), families[family][-1])
    return ""

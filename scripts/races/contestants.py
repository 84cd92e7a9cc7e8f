"""Who races: the contestants by name, what they need, and the settings that they are given."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from geonpg.configs import load
from geonpg.errors import choose
from geonpg.scripts.runs import baseline_settings as zoo
from geonpg.scripts.runs.evaluation import has_time_limit

OURS, RLTOOLS = "geonpg", "rltools-ppo"
PRESET, METHOD = "default", "geo"  # of ours
MOOT = ("steps", "eval_every", "eval_episodes")  # settings of ours that the clock takes the place of
INSTALL = 'pip install "geonpg[race]"'


# What pip must have installed for each.
CONTESTANTS: Mapping[str, tuple[str, ...]] = {
    OURS: ("geonpg",),
    "ppo": ("stable-baselines3",),
    "trpo": ("sb3-contrib",),
    "sac": ("stable-baselines3",),
    "tqc": ("sb3-contrib",),
    "sbx-sac": ("sbx-rl", "jax", "jaxlib"),
    RLTOOLS: ("rltools", *(("mkl", "mkl-include") if sys.platform == "linux" else ())),
}


def config_of(contestant: str, env_id: str) -> dict[str, Any]:
    """Return the settings of a contestant: all of ours, and of the others what is not their defaults."""
    if contestant == OURS:
        ours = asdict(load(PRESET, env_id, {"method": METHOD}))
        return {key: value for key, value in ours.items() if key not in MOOT}
    if contestant == RLTOOLS:
        return {"settings": "default"}
    settings = zoo.settings_for(env_id)
    return {"settings": settings, **(zoo.tuned(contestant, env_id) if settings == "zoo" else {})}


def versions_of(contestant: str) -> dict[str, str]:
    """Return the versions of what a contestant is made of."""
    return {project: version(project) for project in CONTESTANTS[contestant]}


def missing(contestant: str) -> str:
    """Say what is not installed, and how to install it; empty if nothing is missing."""
    absent = [project for project in choose("contestant", contestant, CONTESTANTS) if not is_there(project)]
    return f"it needs {' and '.join(absent)} ({INSTALL})" if absent else ""


def is_there(project: str) -> bool:
    """Return whether pip has installed a project."""
    try:
        version(project)
    except PackageNotFoundError:
        return False
    return True


def unfit(contestant: str, env: VecEnv) -> str:
    """Say why a contestant cannot train in these environments; empty if it can."""
    actions, observations = env.action_space, env.observation_space
    if contestant in zoo.ALGORITHMS or contestant == OURS:
        return ""
    if not (isinstance(actions, spaces.Box) and isfinite(np.abs([actions.low, actions.high]).max())):
        return f"its actions must be continuous and bounded, not {actions}"
    if contestant != RLTOOLS:
        return ""
    if not isinstance(observations, spaces.Box) or observations.shape is None or len(observations.shape) != 1:
        return f"its observations must be vectors, not {observations}"
    return "" if has_time_limit(env) else "it needs a time limit"

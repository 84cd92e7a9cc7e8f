"""The least memory that a run needs, compared with what the machine has."""

import os
from contextlib import suppress
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from geonpg.configs import Settings
from geonpg.envs.spaces import is_large_image
from geonpg.errors import require

FLOAT = 4  # bytes
IMAGE_FEATURES = 256  # at the least, SB3's in a dictionary
CGROUP = Path("/sys/fs/cgroup/memory.max")


def check_memory(settings: Settings, env: VecEnv) -> None:
    """Refuse a run that this machine certainly cannot hold."""
    inputs, features = numbers_in(env.observation_space), features_of(env.observation_space)
    outputs = prod(env.action_space.shape) if isinstance(env.action_space, spaces.Box) else 1
    rollout = rollout_bytes(settings.n_steps * env.num_envs, inputs + outputs, settings)
    networks = sum(network_bytes([features, *hidden, outputs]) for hidden in (settings.hidden, settings.critic_hidden))
    least, there = rollout + networks, machine_bytes()
    keys = "n_steps or n_envs" if rollout > networks else "hidden or critic_hidden"
    require(
        least <= there,
        f"this run needs at least {gigabytes(least)} of memory, and this machine has {gigabytes(there)}: lower {keys}",
    )


def numbers_in(space: spaces.Space[Any]) -> int:
    """Count the numbers of one observation."""
    if isinstance(space, spaces.Dict):
        return sum(map(numbers_in, space.values()))
    return prod(space.shape or (1,))


def features_of(space: spaces.Space[Any]) -> int:
    """Count the inputs of the first hidden layer; images have passed SB3's convolutions by then."""
    if isinstance(space, spaces.Dict):
        return sum(map(features_of, space.values()))
    return IMAGE_FEATURES if is_large_image(space) else numbers_in(space)


def rollout_bytes(rows: int, numbers: int, settings: Settings) -> int:
    """Estimate the rollout buffer with its batch, and the activations of one pass with its gradient."""
    units = sum(settings.hidden) + sum(settings.critic_hidden)
    return 2 * FLOAT * rows * (numbers + units)


def network_bytes(sizes: list[int]) -> int:
    """Estimate weights, gradient, step and average, and every layer's Kronecker factors with their inverses."""
    weights = sum((before + 1) * after for before, after in pairwise(sizes))
    factors = sum((before + 1) ** 2 + after**2 for before, after in pairwise(sizes))
    return FLOAT * (4 * weights + 2 * factors)


def machine_bytes() -> int:
    """Return the physical memory, or this container's share of it."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # elsewhere than on Linux, or no limit: "max"
        found = min(found, int(CGROUP.read_text()))
    return found


def gigabytes(count: int) -> str:
    """Format a number of bytes for people."""
    return f"{count / 1e9:,.1f} GB"

"""The observation and action spaces that can be trained on; others are refused by name, before any work."""

import inspect
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space

from geonpg.errors import Refused

from .arrays import Env

OBSERVATIONS = (
    "a Box of one or more dimensions, Discrete, MultiDiscrete of one dimension, MultiBinary, or a Dict of those"
)
ACTIONS = "a Box of at least one number, Discrete, or MultiDiscrete or MultiBinary of one dimension"
SMALLEST_IMAGE = 36  # pixels; SB3's convolutions leave nothing of less
FORM = "def reset(self, *, seed=None, options=None)"

AnyEnv = TypeVar("AnyEnv", bound=Env)


def checked(env: AnyEnv) -> AnyEnv:
    """Return the environment itself; refuse one that SB3 and we cannot train on."""
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    for problem in problems(env, name):
        raise Refused(problem)
    return env


def problems(env: Env, name: str) -> Iterator[str]:
    """Say what is wrong with an environment, a sentence for each problem."""
    observed, acted = env.observation_space, env.action_space
    parts = list(observed.spaces.values()) if isinstance(observed, spaces.Dict) else [observed]
    if not parts or not all(is_observation(part) for part in parts):
        yield f"observations of {name} must be {OBSERVATIONS}, not {one_line(observed)}"
    if not is_action(acted):
        yield f"actions of {name} must be {ACTIONS}, not {one_line(acted)}"
    for space in (*parts, acted):
        if np.any(getattr(space, "start", 0)):
            yield f"choices of {name} must be counted from 0, as SB3 does, not as in {one_line(space)}"
    if isinstance(observed, spaces.Dict) and any(is_image_space(part) and not is_large_image(part) for part in parts):
        least = f"at least {SMALLEST_IMAGE} x {SMALLEST_IMAGE} pixels"
        yield f"images among the observations of {name} must have {least}, not {one_line(observed)}"
    if not takes_seed(env.unwrapped.reset):
        yield f"reset of {name} must take a seed, as gymnasium's does: {FORM}"


def one_line(anything: object) -> str:
    """Print an object without line breaks."""
    return " ".join(str(anything).split())


def is_observation(space: object) -> bool:
    """Return whether this is a space that observations, or a part of them, may have."""
    if isinstance(space, spaces.Box):
        return len(space.shape) > 0 and 0 not in space.shape
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ndim == 1
    return isinstance(space, spaces.Discrete | spaces.MultiBinary)


def is_action(space: object) -> bool:
    """Return whether this is a space that actions may have."""
    if isinstance(space, spaces.Box):
        return 0 not in space.shape
    if isinstance(space, spaces.MultiBinary):
        return isinstance(space.n, int | np.integer)
    return is_observation(space)


def is_large_image(space: spaces.Space[object]) -> bool:
    """Return whether SB3's convolutions can look at it."""
    return is_image_space(space) and sorted(space.shape or ())[1] >= SMALLEST_IMAGE


def takes_seed(reset: Callable[..., object]) -> bool:
    """Return whether a `reset` has a parameter for the seed."""
    parameters = inspect.signature(reset).parameters.values()
    return any(parameter.name == "seed" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

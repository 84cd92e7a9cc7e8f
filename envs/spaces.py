"""Which environments of others can be trained on; what cannot is refused by name, before any work."""

import inspect
from collections.abc import Iterator
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space

from geonpg.errors import Refused

OBSERVATIONS = (
    "a Box of one or more dimensions, Discrete, MultiDiscrete of one dimension, MultiBinary, or a Dict of those"
)
ACTIONS = "a Box of at least one number, Discrete, or MultiDiscrete or MultiBinary of one dimension"
SMALLEST_IMAGE = 36  # pixels; SB3's convolutions leave nothing of less
FORM = "def reset(self, *, seed=None, options=None)"

Env = TypeVar("Env", bound=gymnasium.Env[Any, Any])


def checked(env: Env) -> Env:
    """The environment itself, if SB3 and we can train on it."""
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    for problem in problems(env, name):
        raise Refused(problem)
    return env


def problems(env: gymnasium.Env[Any, Any], name: str) -> Iterator[str]:
    """What is wrong with an environment, a sentence each."""
    seen, acted = env.observation_space, env.action_space
    parts = list(seen.spaces.values()) if isinstance(seen, spaces.Dict) else [seen]
    if not parts or not all(is_observation(part) for part in parts):
        yield f"observations of {name} must be {OBSERVATIONS}, not {one_line(seen)}"
    if not is_action(acted):
        yield f"actions of {name} must be {ACTIONS}, not {one_line(acted)}"
    for space in (*parts, acted):
        if np.any(getattr(space, "start", 0)):
            yield f"choices of {name} must be counted from 0, as SB3 does, not as in {one_line(space)}"
    if isinstance(seen, spaces.Dict) and any(is_image_space(part) and not is_large_image(part) for part in parts):
        least = f"at least {SMALLEST_IMAGE} x {SMALLEST_IMAGE} pixels"
        yield f"images among the observations of {name} must have {least}, not {one_line(seen)}"
    if not takes_seed(env.unwrapped.reset):
        yield f"reset of {name} must take a seed, as gymnasium's does: {FORM}"


def one_line(anything: object) -> str:
    """As it is printed, without the line breaks."""
    return " ".join(str(anything).split())


def is_observation(space: Any) -> bool:
    if isinstance(space, spaces.Box):
        return len(space.shape) > 0 and 0 not in space.shape
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ndim == 1
    return isinstance(space, spaces.Discrete | spaces.MultiBinary)


def is_action(space: Any) -> bool:
    if isinstance(space, spaces.Box):
        return 0 not in space.shape
    if isinstance(space, spaces.MultiBinary):
        return isinstance(space.n, int | np.integer)
    return is_observation(space)


def is_large_image(space: Any) -> bool:
    """Whether SB3's convolutions can look at it."""
    return is_image_space(space) and sorted(space.shape)[1] >= SMALLEST_IMAGE


def takes_seed(reset: Any) -> bool:
    parameters = inspect.signature(reset).parameters.values()
    return any(parameter.name == "seed" or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

"""Observations as environments, buffers and networks hand them on: an array, or a dictionary of arrays."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]  # of any dtype
Observations: TypeAlias = Array | dict[str, Array]


def flattened(observations: Observations) -> Observations:
    """Merge steps and environments: [steps, environments, ...] becomes [steps x environments, ...]."""
    if isinstance(observations, dict):
        return {key: array.reshape(-1, *array.shape[2:]) for key, array in observations.items()}
    return observations.reshape(-1, *observations.shape[2:])


def stacked(observations: Sequence[Observations]) -> Observations:
    """Put single observations together into one batch."""
    first = observations[0]
    if isinstance(first, dict):
        return {key: np.stack([np.asarray(each[key]) for each in observations]) for key in first}
    return np.stack([np.asarray(each) for each in observations])


def batch_of_one(space: Space[object]) -> Observations:
    """A batch of one observation, all zeros, to try networks with."""
    if isinstance(space, spaces.Dict):
        return {key: np.asarray(batch_of_one(part)) for key, part in space.spaces.items()}
    return np.zeros((1, *(space.shape or ())), dtype=space.dtype)

"""Which observations are scaled, and the spaces that they have then."""

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space

from geonpg.errors import Refused


def scaled_space(space: spaces.Space[object], clip: float) -> tuple[spaces.Space[object], dict[str, slice], int]:
    """Return the space of scaled observations, and the layout of a row of the statistics.

    The layout is the columns of each vector of a dictionary, and the number of all columns.
    """
    refusal = Refused(
        f"Normalize takes observations that are vectors, a Box of one dimension, not {space}: leave them as they"
        " are by observations=False (normalize_observations=false)"
    )
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return scaled_vector(space, clip), {}, space.shape[0]
    if not isinstance(space, spaces.Dict) or not has_numbers(space):
        raise refusal
    parts, columns, size = dict(space.spaces), dict[str, slice](), 0
    for key, part in space.spaces.items():
        if not has_numbers(part):
            continue
        if not isinstance(part, spaces.Box) or len(part.shape) != 1:
            raise refusal
        columns[key] = slice(size, size + part.shape[0])
        size, parts[key] = columns[key].stop, scaled_vector(part, clip)
    return spaces.Dict(parts), columns, size


def has_numbers(space: spaces.Space[object]) -> bool:
    """Return whether there is something to scale: images, which SB3 divides by 255, and choices are not."""
    if isinstance(space, spaces.Dict):
        return any(has_numbers(part) for part in space.values())
    return isinstance(space, spaces.Box) and not is_image_space(space)


def scaled_vector(space: spaces.Box, clip: float) -> spaces.Box:
    """Return the space of a scaled vector; never one of integers, whose dtype would cut fractions off in a buffer."""
    return space if np.issubdtype(space.dtype, np.floating) else spaces.Box(-clip, clip, space.shape, np.float32)

"""What a step of native environments returns, and the state that they go on from."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from .arrays import Array, Flags, Indices, Info


class Transition(NamedTuple):
    """One step of all environments. `observations` are already those of new episodes where one has ended."""

    observations: Array
    rewards: Array
    terminated: Flags
    truncated: Flags
    dones: Flags
    ended: Indices  # the environments whose episode has ended; what follows has one row for each of them
    final_observations: Array
    returns: Array
    lengths: NDArray[np.int64]
    infos: Sequence[Info] = ()  # gymnasium's own, one for each environment, where they were asked for


class MujocoState(TypedDict):
    """Everything that decides how the environments continue, as checkpoints store it."""

    physics: Array  # [n, size of MuJoCo's state]
    observations: Array  # the last ones, before any wrapper
    mark: Array  # `Task.progress`, under its first name
    returns: Array
    lengths: NDArray[np.int64]
    generators: list[Mapping[str, Any]]  # numpy's own form
    infos: NotRequired[Mapping[str, Array]]

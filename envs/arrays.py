"""Types of what environments take and return, each named once; [n, ...] has one row per environment."""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]  # of environments
Numbers = NDArray[Any]  # in whatever dtype an environment uses: of observations, of actions, of pictures
Info = dict[str, Any]  # gymnasium's `info` of one environment: anything under any name
State = dict[str, Any]  # what `get_state` returns: numbers, arrays and nested states, as a checkpoint stores them
Env = gymnasium.Env[Any, Any]  # of any observations and actions

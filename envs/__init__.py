"""Vectorised MuJoCo environments at the speed of physics.

The main path: `make_vec(id, n_envs)` in `make.py`; `MujocoVecEnv` in `mujoco.py` steps, `locomotion.py` and
`balance.py` hold the tasks.
"""

from .make import is_native, make_vec
from .mujoco import TASKS, MujocoVecEnv, Transition
from .normalize import Moments, Normalize, frozen
from .reference import quietly
from .vector import GymVectorEnv
from .wrappers import Frames, ScaleActions

__all__ = [
    "TASKS",
    "Frames",
    "GymVectorEnv",
    "Moments",
    "MujocoVecEnv",
    "Normalize",
    "ScaleActions",
    "Transition",
    "frozen",
    "is_native",
    "make_vec",
    "quietly",
]

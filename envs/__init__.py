"""Vectorised MuJoCo environments at the speed of physics.

The main path: `make_vec(id, n_envs)` in `make.py`; `MujocoVecEnv` in `mujoco.py` steps; `locomotion.py` and
`balance.py` hold the tasks, `native.py` their list.
"""

from .make import make_vec
from .moments import Moments
from .mujoco import MujocoVecEnv
from .native import TASKS, is_native
from .normalize import Normalize, frozen
from .physics import PHYSICS
from .reference import quietly
from .robots import Robot, RobotEnv, register
from .transitions import Transition
from .vector import GymVectorEnv
from .wrappers import Frames, ScaleActions

__all__ = [
    "PHYSICS",
    "TASKS",
    "Frames",
    "GymVectorEnv",
    "Moments",
    "MujocoVecEnv",
    "Normalize",
    "Robot",
    "RobotEnv",
    "ScaleActions",
    "Transition",
    "frozen",
    "is_native",
    "make_vec",
    "quietly",
    "register",
]

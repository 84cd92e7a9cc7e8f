"""Vectorised MuJoCo environments at the speed of physics."""

from .mujoco import TASKS, MujocoVecEnv, Transition

__all__ = ["TASKS", "MujocoVecEnv", "Transition"]

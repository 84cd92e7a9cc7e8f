"""The environments that we step ourselves: some of gymnasium's, and robots of users."""

from importlib import import_module

import gymnasium
from gymnasium.envs.registration import EnvSpec

from geonpg.errors import Refused

from .balance import InvertedDoublePendulum, InvertedPendulum, Reacher
from .locomotion import Ant, HalfCheetah, Humanoid, HumanoidStandup, Swimmer, Upright
from .reference import Reference
from .robots import ENTRY_POINT, RobotEnv
from .task import GymTask, Task

# by gymnasium's entry point
TASKS: dict[str, type[GymTask]] = {
    f"gymnasium.envs.mujoco.{module}_{version}:{name}Env": task
    for module, name, task in (
        ("half_cheetah", "HalfCheetah", HalfCheetah),
        ("swimmer", "Swimmer", Swimmer),
        ("hopper", "Hopper", Upright),
        ("walker2d", "Walker2d", Upright),
        ("ant", "Ant", Ant),
        ("humanoid", "Humanoid", Humanoid),
        ("humanoidstandup", "HumanoidStandup", HumanoidStandup),
        ("reacher", "Reacher", Reacher),
        ("inverted_pendulum", "InvertedPendulum", InvertedPendulum),
        ("inverted_double_pendulum", "InvertedDoublePendulum", InvertedDoublePendulum),
    )
    for version in ("v4", "v5")
}


def is_native(env_id: str) -> bool:
    """Return whether we step this environment ourselves; of an id `module:Id`, once its module was imported."""
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    return spec is not None and str(spec.entry_point) in {*TASKS, ENTRY_POINT} and not spec.additional_wrappers


def spec_of(env_id: str) -> EnvSpec:
    """Return what gymnasium knows of an id; the module of an id `module:Id` is imported, as gymnasium does."""
    module, _, name = env_id.rpartition(":")
    if module:
        import_module(module)
    return gymnasium.spec(name)


def task_of(env_id: str, reference: Reference) -> Task:
    """Return the task of a native id; Refused for others."""
    if isinstance(reference, RobotEnv):
        return reference.robot
    spec = spec_of(env_id)
    if str(spec.entry_point) not in TASKS:
        raise Refused(f"{env_id} has no native implementation: make_vec() falls back to SB3's environments")
    return TASKS[str(spec.entry_point)](reference)

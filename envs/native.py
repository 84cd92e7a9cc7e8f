"""The environments of gymnasium that we step ourselves."""

import gymnasium

from geonpg.errors import Refused

from .balance import InvertedDoublePendulum, InvertedPendulum, Reacher
from .locomotion import Ant, HalfCheetah, Humanoid, HumanoidStandup, Swimmer, Upright
from .reference import Reference
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
    """Return whether this is one of gymnasium's MuJoCo environments that we step ourselves."""
    spec = gymnasium.registry.get(env_id)
    return spec is not None and str(spec.entry_point) in TASKS and not spec.additional_wrappers


def task_of(env_id: str, reference: Reference) -> Task:
    """Return the task of a native id; Refused for others."""
    spec = gymnasium.spec(env_id)
    if str(spec.entry_point) not in TASKS:
        raise Refused(f"{env_id} has no native implementation: make_vec() falls back to SB3's environments")
    return TASKS[str(spec.entry_point)](reference)

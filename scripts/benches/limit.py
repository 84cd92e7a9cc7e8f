"""The limit that MuJoCo sets: recorded episodes replayed as bare `mj_step` calls, in one Python thread per core.

No observations, no rewards, no policy, no waiting for one another. Every replay is checked to end where the recorded
run did, to the last bit.
"""

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

from geonpg.envs import PHYSICS, MujocoVecEnv, is_native
from geonpg.errors import require
from geonpg.scripts.benches.contest import CORES, Contestant

SEED = 0

Actions = NDArray[np.float32]
Array = NDArray[np.float64]


def native_ids(names: str | None, default: Sequence[str]) -> Sequence[str]:
    """Read ids separated by commas; refuse those that we do not step ourselves."""
    if names is None:
        return default
    for name in names.split(","):
        require(is_native(name), f"{name!r} is not an environment that we step ourselves, such as {default[0]}")
    return names.split(",")


def native(env_id: str, n_envs: int) -> MujocoVecEnv:
    """Make our environments, seeded and reset."""
    env = MujocoVecEnv(env_id, n_envs)
    env.seed(SEED)
    env.reset()
    return env


def draw_actions(env: MujocoVecEnv, steps: int) -> Actions:
    """Draw actions [steps, environments, actuators], uniform in the action space."""
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    shape = (steps, env.num_envs, *space.shape)
    return np.random.default_rng(SEED).uniform(space.low, space.high, shape).astype(np.float32)


@dataclass(frozen=True)
class Episodes:
    """What environments did, and where they ended."""

    episodes: list[list[tuple[Array, Actions]]]  # for each environment: first physics state and actions of an episode
    ends: Array  # physics after the last step [environments, size of MuJoCo's state]


def record(env: MujocoVecEnv, actions: Actions) -> Episodes:
    """Step `env` from where it is."""
    physics = env.simulations.physics
    starts = [[(0, row.copy())] for row in physics]
    for t, action in enumerate(actions, start=1):
        for i in env.advance(action).ended:
            starts[i].append((t, physics[i].copy()))
    episodes = []
    for i, mine in enumerate(starts):
        stops = [t for t, _ in mine[1:]] + [len(actions)]
        episodes.append([(state, actions[t:stop, i]) for (t, state), stop in zip(mine, stops, strict=True)])
    return Episodes(episodes, physics.copy())


def replay(env: MujocoVecEnv, recorded: Episodes, simulations: Sequence[mujoco.MjData], threads: Executor) -> Array:
    """Take the recorded steps on one thread per simulation; return where they end, like `Episodes.ends`."""
    model, frame_skip = env.reference.model, env.reference.frame_skip
    ends = np.empty_like(recorded.ends)
    todo = iter(range(len(recorded.episodes)))  # shared: whoever is free takes the next environment

    def work(data: mujoco.MjData) -> None:
        for i in todo:
            for state, actions in recorded.episodes[i]:
                mujoco.mj_setState(model, data, state, PHYSICS)
                for action in actions:
                    data.ctrl[:] = action
                    mujoco.mj_step(model, data, frame_skip)
            mujoco.mj_getState(model, data, ends[i], PHYSICS)

    list(threads.map(work, simulations))  # the list raises what a thread has raised
    return ends


def check_ends(ends: Array, expected: Array) -> None:
    """Raise RuntimeError unless a replay ended where the recorded run did."""
    wrong = (ends != expected).any(1).nonzero()[0]
    if len(wrong):
        raise RuntimeError(f"the replay of environments {wrong.tolist()} does not end where our run did")


def limit_contestant(env: MujocoVecEnv, actions: Actions, stack: ExitStack) -> Contestant:
    """Step `env` from where it is; return a contestant that replays the physics of that and nothing else."""
    recorded = record(env, actions)
    threads = stack.enter_context(ThreadPoolExecutor(CORES))
    simulations = [mujoco.MjData(env.reference.model) for _ in range(CORES)]
    check_ends(replay(env, recorded, simulations, threads), recorded.ends)

    def run() -> int:
        replay(env, recorded, simulations, threads)
        return len(actions) * env.num_envs

    return Contestant(lambda: None, run)

"""Environment steps per second: ours, gymnasium's, SB3's and EnvPool's, and the limit that MuJoCo itself sets.

All but EnvPool, which has its own generator, run the very same episodes with the same actions. The limit replays them
as bare `mj_step` calls in one thread per core: no observations, no rewards, no waiting for one another.
"""

import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from tqdm import tqdm

from geonpg.envs import MujocoVecEnv, quietly
from geonpg.envs.reference import PHYSICS

ENVS, N_ENVS, STEPS, ROUNDS, SEED = ("HalfCheetah-v4", "Walker2d-v4"), 16, 250, 15, 0
PROCESS_STEPS = 50  # of those with a process per environment, on which half of the time would go otherwise
CORES = os.cpu_count() or 1
INSTALL = "pip install envpool==1.2.5"

Actions = NDArray[np.float32]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Contestant:
    prepare: Callable[[], object]  # back to the first step, untimed
    run: Callable[[], int]  # takes all steps; returns how many steps of single environments they were


def single(env_id: str) -> gymnasium.Env[Any, Any]:
    with quietly():
        return gymnasium.make(env_id)


def monitored(env_id: str) -> Monitor:
    """As SB3's `make_vec_env` makes them."""
    return Monitor(single(env_id))


def native(env_id: str, n_envs: int | None = None) -> MujocoVecEnv:
    env = MujocoVecEnv(env_id, n_envs or N_ENVS)
    env.seed(SEED)
    env.reset()
    return env


def draw_actions(env: MujocoVecEnv) -> Actions:
    """[steps, environments, actuators], uniform in the action space."""
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    shape = (STEPS, env.num_envs, *space.shape)
    return np.random.default_rng(SEED).uniform(space.low, space.high, shape).astype(np.float32)


def take_all(step: Callable[[Actions], object], actions: Actions) -> int:
    for action in actions:
        step(action)
    return len(actions) * N_ENVS


# the limit


@dataclass(frozen=True)
class Recording:
    """For each environment its episodes, as first physics state and actions, and the qpos where the last one ends."""

    episodes: list[list[tuple[Array, Actions]]]
    ends: Array


def record(env: MujocoVecEnv, actions: Actions) -> Recording:
    """Runs `env` from where it is."""
    starts = [[(0, row)] for row in env.get_state()["physics"]]
    for t, action in enumerate(actions, start=1):
        ended = env.advance(action).ended
        if len(ended):
            physics = env.get_state()["physics"]
            for i in ended:
                starts[i].append((t, physics[i]))
    episodes = []
    for i, mine in enumerate(starts):
        stops = [t for t, _ in mine[1:]] + [len(actions)]
        episodes.append([(state, actions[t:stop, i]) for (t, state), stop in zip(mine, stops, strict=True)])
    return Recording(episodes, env.batch.bind("qpos").copy())


def replay(env: MujocoVecEnv, recording: Recording, simulations: Sequence[mujoco.MjData], threads: Executor) -> Array:
    """The recording's steps on one thread per simulation; returns where they end, like `Recording.ends`."""
    model, frame_skip = env.reference.model, env.reference.frame_skip
    ends = np.empty_like(recording.ends)
    todo = iter(range(len(recording.episodes)))  # shared: whoever is free takes the next environment

    def work(data: mujoco.MjData) -> None:
        for i in todo:
            for state, actions in recording.episodes[i]:
                mujoco.mj_setState(model, data, state, PHYSICS)
                for action in actions:
                    data.ctrl[:] = action
                    mujoco.mj_step(model, data, frame_skip)
            ends[i] = data.qpos

    list(threads.map(work, simulations))  # the list raises what a thread has raised
    return ends


def check(ends: Array, recording: Recording) -> None:
    wrong = (ends != recording.ends).any(1).nonzero()[0]
    if len(wrong):
        raise RuntimeError(f"the replay of environments {wrong.tolist()} does not end where our run did")


def limit(env: MujocoVecEnv, actions: Actions, stack: ExitStack) -> Contestant:
    """Runs `env` from where it is, and replays that."""
    recording = record(env, actions)
    threads = stack.enter_context(ThreadPoolExecutor(CORES))
    simulations = [mujoco.MjData(env.reference.model) for _ in range(CORES)]
    check(replay(env, recording, simulations, threads), recording)

    def run() -> int:
        replay(env, recording, simulations, threads)
        return len(actions) * env.num_envs

    return Contestant(lambda: None, run)


def native_and_limit(env_id: str, stack: ExitStack) -> tuple[Actions, dict[str, Contestant]]:
    env = native(env_id)
    stack.callback(env.close)
    actions, state = draw_actions(env), env.get_state()
    ours = Contestant(partial(env.set_state, state), partial(take_all, env.step, actions))
    return actions, {"ours": ours, "limit": limit(env, actions, stack)}


# the others


def gymnasium_sync(env_id: str) -> Any:
    vector = import_module("gymnasium.vector")
    return vector.SyncVectorEnv([partial(single, env_id)] * N_ENVS, autoreset_mode=vector.AutoresetMode.SAME_STEP)


def gymnasium_async(env_id: str) -> Any:
    vector = import_module("gymnasium.vector")
    makers, same_step = [partial(single, env_id)] * N_ENVS, vector.AutoresetMode.SAME_STEP
    return vector.AsyncVectorEnv(makers, context="forkserver", autoreset_mode=same_step)


def sb3_dummy(env_id: str) -> VecEnv:
    return DummyVecEnv([partial(monitored, env_id)] * N_ENVS)


def sb3_subproc(env_id: str) -> VecEnv:
    return SubprocVecEnv([partial(monitored, env_id)] * N_ENVS, start_method="forkserver")


# By default gymnasium spends a step on each reset; in its same-step mode a step is a step, as in SB3.
PYTHON: dict[str, Callable[[str], Any]] = {
    "gymnasium_sync": gymnasium_sync,
    "gymnasium_async": gymnasium_async,
    "sb3_dummy": sb3_dummy,
    "sb3_subproc": sb3_subproc,
}
PROCESSES = ("gymnasium_async", "sb3_subproc")


def reset_seeded(env: Any) -> None:
    if isinstance(env, VecEnv):
        env.seed(SEED)
        env.reset()
    else:
        env.reset(seed=SEED)


def python_contestant(name: str, env_id: str, actions: Actions, stack: ExitStack) -> Contestant:
    env = PYTHON[name](env_id)
    stack.callback(env.close)
    mine = actions[:PROCESS_STEPS] if name in PROCESSES else actions
    return Contestant(partial(reset_seeded, env), partial(take_all, env.step, mine))


def envpool_contestant(env_id: str, actions: Actions, stack: ExitStack) -> Contestant:
    pool = import_module("envpool").make(env_id, env_type="gymnasium", num_envs=N_ENVS, num_threads=CORES, seed=SEED)
    stack.callback(pool.close)

    def run() -> int:
        """EnvPool spends a step on each reset, with no physics in it: those are not counted."""
        return sum(int(np.count_nonzero(pool.step(action)[4]["elapsed_step"])) for action in actions)

    pool.reset()
    return Contestant(pool.reset, run)


def contestants(env_id: str, stack: ExitStack) -> dict[str, Contestant]:
    actions, found = native_and_limit(env_id, stack)
    try:
        found["envpool"] = envpool_contestant(env_id, actions, stack)
    except Exception as error:  # whatever keeps it from starting, the others can be measured
        print(f"EnvPool is left out: {error}", file=sys.stderr)
    # the workers fork from a server that has imported everything, and has none of our threads
    multiprocessing.set_forkserver_preload([__name__])
    return found | {name: python_contestant(name, env_id, actions, stack) for name in PYTHON}


def speeds_by_round(entries: Mapping[str, Contestant], rounds: int, title: str) -> dict[str, list[float]]:
    """Steps per second in rounds in which everyone runs once, after one more round as a warm-up."""
    speeds: dict[str, list[float]] = {name: [] for name in entries}
    shuffler = random.Random(SEED)  # or someone would always run right after a pool of processes
    for _ in tqdm(range(rounds + 1), desc=title, leave=False, disable=None):
        for name in shuffler.sample(list(entries), len(entries)):
            entry = entries[name]
            entry.prepare()
            start = time.perf_counter()
            steps = entry.run()
            speeds[name].append(steps / (time.perf_counter() - start))
    return {name: values[1:] for name, values in speeds.items()}


def medians(speeds: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in speeds.items()}


def measure() -> dict[str, float]:
    results: dict[str, float] = {}
    for env_id in ENVS:
        with ExitStack() as stack:
            speeds = medians(speeds_by_round(contestants(env_id, stack), ROUNDS, env_id))
        rivals = {"limit": speeds["limit"], "best_python": max(speeds[name] for name in PYTHON)}
        if "envpool" in speeds:
            rivals["envpool"] = speeds["envpool"]
        results |= {f"envs/{env_id}/ours_over_{name}": speeds["ours"] / speed for name, speed in rivals.items()}
        results |= {f"envs/{env_id}/{name}_steps_per_second": speed for name, speed in speeds.items()}
    return results


def block(env_id: str, results: dict[str, float]) -> list[str]:
    """One id's part of the table, fastest first."""
    head, unit = f"envs/{env_id}/", "_steps_per_second"
    mine = {name.removeprefix(head): value for name, value in results.items() if name.startswith(head)}
    speeds = {name.removesuffix(unit): value for name, value in mine.items() if name.endswith(unit)}
    lines = ["", f"{env_id:20}{'steps/s':>10}{'x limit':>10}"]
    for name, speed in sorted(speeds.items(), key=lambda item: -item[1]):
        lines.append(f"{name:20}{speed:10.0f}{speed / speeds['limit']:10.3f}")
    if "envpool" not in speeds:
        lines.append(f"EnvPool is left out: it is not installed or did not start ({INSTALL})")
    ratios = {name.removeprefix("ours_over_"): value for name, value in mine.items() if name.startswith("ours_over_")}
    return [*lines, "ours over " + ", ".join(f"{name} {value:.3f}" for name, value in ratios.items())]


def table(results: dict[str, float]) -> str:
    lines = [f"{N_ENVS} environments, {CORES} cores, random actions, medians of {ROUNDS} interleaved rounds"]
    lines.append(f"of {STEPS} steps, or {PROCESS_STEPS} for {' and '.join(PROCESSES)}")
    return "\n".join([*lines, *(line for env_id in ENVS for line in block(env_id, results))])

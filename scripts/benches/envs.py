"""Environment steps per second: ours, gymnasium's, SB3's and EnvPool's, and the limit that MuJoCo itself sets.

All but EnvPool, which has its own generator, run the very same episodes with the same actions. Whole rollouts, with the
default policy inside, have a limit of their own: bare physics of the policy's states and actions.
"""

import multiprocessing
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from geonpg.envs import quietly
from geonpg.scripts.benches.contest import CORES, Contestant, medians, speeds_by_round
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.benches.limit import Actions, draw_actions, limit_contestant, native, native_ids
from geonpg.scripts.benches.rollouts import rollout_and_limit

ENV_IDS, N_ENVS, STEPS, ROUNDS, SEED = ("HalfCheetah-v4", "Walker2d-v4"), 16, 250, 15, 0
ROLLOUTS = 4  # in a row, of the preset's 64 steps: about as many steps
PROCESS_STEPS = 50  # for those with a process per environment, which would take half of the time otherwise
INSTALL = "pip install envpool==1.2.5"


@dataclass(frozen=True)
class EnvsFindings(Findings):
    """Environment steps per second."""

    speeds: Mapping[str, Mapping[str, float]]  # id -> contestant

    def ours_over(self, env_id: str) -> dict[str, float]:
        """How many times as fast as the limit, the best in Python, and EnvPool where it took part, ours are."""
        speeds = self.speeds[env_id]
        rivals = {"limit": speeds["limit"], "best_python": max(speeds[name] for name in PYTHON)}
        if "envpool" in speeds:
            rivals["envpool"] = speeds["envpool"]
        return {name: speeds["ours"] / speed for name, speed in rivals.items()}

    def rollout_over_limit(self, env_id: str) -> float:
        """How many times as fast as bare physics of the same states and actions whole rollouts are."""
        return self.speeds[env_id]["rollout"] / self.speeds[env_id]["rollout_limit"]

    def numbers(self) -> Numbers:
        found = {}
        for env_id, speeds in self.speeds.items():
            ratios = {f"ours_over_{name}": ratio for name, ratio in self.ours_over(env_id).items()}
            ratios["rollout_over_limit"] = self.rollout_over_limit(env_id)
            found[env_id] = ratios | {f"{name}_steps_per_second": speed for name, speed in speeds.items()}
        return {"envs": found}

    def table(self) -> str:
        lines = [f"{N_ENVS} environments, {CORES} cores, random actions, medians of {ROUNDS} interleaved rounds"]
        lines.append(f"of {STEPS} steps, or {PROCESS_STEPS} for {' and '.join(PROCESSES)}")
        lines.append(f"rollout: {ROLLOUTS} whole rollouts of the default policy, over a limit of the same states")
        return "\n".join([*lines, *(line for env_id in self.speeds for line in self.lines(env_id))])

    def lines(self, env_id: str) -> list[str]:
        """Return one id's part of the table, fastest first."""
        speeds = self.speeds[env_id]
        lines = ["", f"{env_id:20}{'steps/s':>10}{'x limit':>10}"]
        for name, speed in sorted(speeds.items(), key=lambda item: -item[1]):
            limit = speeds["rollout_limit" if name.startswith("rollout") else "limit"]
            lines.append(f"{name:20}{speed:10.0f}{speed / limit:10.3f}")
        if "envpool" not in speeds:
            lines.append(f"EnvPool is left out: it is not installed or did not start ({INSTALL})")
        ratios = [f"{name} {ratio:.3f}" for name, ratio in self.ours_over(env_id).items()]
        return [*lines, f"ours over {', '.join(ratios)}", f"rollout over limit {self.rollout_over_limit(env_id):.3f}"]


def single(env_id: str) -> gymnasium.Env[Any, Any]:
    """Make one environment of gymnasium's, without its warning about old versions."""
    with quietly():
        return gymnasium.make(env_id)


def monitored(env_id: str) -> Monitor:
    """Make one environment as SB3's `make_vec_env` does."""
    return Monitor(single(env_id))


def take_all(step: Callable[[Actions], object], actions: Actions) -> int:
    """Take every step; return how many steps of single environments they were."""
    for action in actions:
        step(action)
    return len(actions) * N_ENVS


def native_and_limit(env_id: str, stack: ExitStack) -> tuple[Actions, dict[str, Contestant]]:
    """Return the actions that everyone takes, and our environments with their limit."""
    env = native(env_id, N_ENVS)
    stack.callback(env.close)
    actions, state = draw_actions(env, STEPS), env.get_state()
    ours = Contestant(partial(env.set_state, state), partial(take_all, env.step, actions))
    return actions, {"ours": ours, "limit": limit_contestant(env, actions, stack)}


def gymnasium_sync(env_id: str) -> Any:
    """Make gymnasium's vector in one process."""
    vector = import_module("gymnasium.vector")
    return vector.SyncVectorEnv([partial(single, env_id)] * N_ENVS, autoreset_mode=vector.AutoresetMode.SAME_STEP)


def gymnasium_async(env_id: str) -> Any:
    """Make gymnasium's vector with a process per environment."""
    vector = import_module("gymnasium.vector")
    makers, same_step = [partial(single, env_id)] * N_ENVS, vector.AutoresetMode.SAME_STEP
    return vector.AsyncVectorEnv(makers, context="forkserver", autoreset_mode=same_step)


def sb3_dummy(env_id: str) -> VecEnv:
    """Make SB3's vector in one process."""
    return DummyVecEnv([partial(monitored, env_id)] * N_ENVS)


def sb3_subproc(env_id: str) -> VecEnv:
    """Make SB3's vector with a process per environment."""
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
    """Reset SB3's or gymnasium's environments to the same first states."""
    if isinstance(env, VecEnv):
        env.seed(SEED)
        env.reset()
    else:
        env.reset(seed=SEED)


def python_contestant(name: str, env_id: str, actions: Actions, stack: ExitStack) -> Contestant:
    """Make one of the vectors of gymnasium's or SB3's a contestant."""
    env = PYTHON[name](env_id)
    stack.callback(env.close)
    mine = actions[:PROCESS_STEPS] if name in PROCESSES else actions
    return Contestant(partial(reset_seeded, env), partial(take_all, env.step, mine))


def envpool_contestant(env_id: str, actions: Actions, stack: ExitStack) -> Contestant:
    """Make EnvPool a contestant; it spends a step on each reset, with no physics in it, which is not counted."""
    pool = import_module("envpool").make(env_id, env_type="gymnasium", num_envs=N_ENVS, num_threads=CORES, seed=SEED)
    stack.callback(pool.close)

    def run() -> int:
        return sum(int(np.count_nonzero(pool.step(action)[4]["elapsed_step"])) for action in actions)

    pool.reset()
    return Contestant(pool.reset, run)


def contestants(env_id: str, stack: ExitStack) -> dict[str, Contestant]:
    """Make everyone who can be started."""
    actions, found = native_and_limit(env_id, stack)
    found |= rollout_and_limit(env_id, N_ENVS, ROLLOUTS, stack)
    try:
        found["envpool"] = envpool_contestant(env_id, actions, stack)
    except Exception as error:  # whatever keeps it from starting, the others can be measured
        print(f"EnvPool is left out: {error}", file=sys.stderr)
    # the workers fork from a server that has imported everything, and has none of our threads
    multiprocessing.set_forkserver_preload([__name__])
    return found | {name: python_contestant(name, env_id, actions, stack) for name in PYTHON}


def measure(envs: str | None = None) -> EnvsFindings:
    """Measure everyone on every id."""
    speeds = {}
    for env_id in native_ids(envs, ENV_IDS):
        with ExitStack() as stack:
            speeds[env_id] = medians(speeds_by_round(contestants(env_id, stack), ROUNDS, env_id).per_second)
    return EnvsFindings(speeds)

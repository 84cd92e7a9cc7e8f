"""Many MuJoCo environments, stepped natively in threads, identical to gymnasium's to the last bit."""

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from .balance import InvertedDoublePendulum, InvertedPendulum, Reacher
from .gather import Gather
from .locomotion import Ant, HalfCheetah, Humanoid, HumanoidStandup, Swimmer, Upright
from .pool import Job, Pool
from .task import Array, Fields, Flags, Task

TASKS: dict[str, type[Task]] = {
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

# Everything that the next mj_step depends on, the solver's warm start included.
PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION


@dataclass(frozen=True)
class Transition:
    """One step of all environments. `observations` are already those of new episodes where one has ended."""

    observations: Array
    rewards: Array
    terminated: Flags
    truncated: Flags
    ended: NDArray[np.intp]  # the environments whose episode has ended
    final_observations: Array  # theirs, before the reset
    returns: Array  # of the ended episodes
    lengths: NDArray[np.int64]


class MujocoVecEnv(VecEnv):
    """`n_envs` environments of one gymnasium MuJoCo id, with gymnasium's own keywords.

    One compiled model, one MjData each; `threads` threads (one per core by default) call mj_step without the
    interpreter lock, everything around the physics is vectorised numpy. The number of threads changes no result.
    """

    def __init__(
        self, env_id: str, n_envs: int = 1, *, threads: int | None = None, render_mode: str | None = None, **kwargs: Any
    ) -> None:
        if n_envs < 1:
            raise ValueError(f"n_envs must be at least 1, not {n_envs}")
        self.wrapped = gymnasium.make(env_id, render_mode=render_mode, disable_env_checker=True, **kwargs)
        spec = self.wrapped.spec
        if spec is None or spec.entry_point not in TASKS:
            raise ValueError(f"{env_id} has no native implementation: make_vec() falls back to SB3's environments")
        self.reference: Any = self.wrapped.unwrapped
        self.task = TASKS[str(spec.entry_point)](self.reference)
        self.model = self.reference.model
        self.data = [mujoco.MjData(self.model) for _ in range(n_envs)]
        self.render_index = 0
        self._limit = spec.max_episode_steps or np.iinfo(np.int64).max
        self._memory(n_envs)
        self._pool = Pool([self._job(data) for data in self.data], threads or os.cpu_count() or 1)
        self._generators = [seeding.np_random()[0] for _ in range(n_envs)]
        self._started = time.time()
        super().__init__(n_envs, self.wrapped.observation_space, self.wrapped.action_space)

    def _memory(self, n_envs: int) -> None:
        """Buffers, and the views of all environments' fields side by side."""
        views = [self.task.views(data) for data in self.data]
        self._gather = Gather([list(view.values()) for view in views])
        self._controls = Gather([[data.ctrl] for data in self.data])
        sizes = [array.size for array in views[0].values()]
        stops = np.cumsum(sizes)
        self._columns = {n: slice(b - s, b) for n, s, b in zip(views[0], sizes, stops, strict=True)}
        self._buffer = np.empty((n_envs, stops[-1]))
        self._now = self._fields(self._buffer)
        self._mark = np.zeros(n_envs)
        self._returns = np.zeros(n_envs)
        self._lengths = np.zeros(n_envs, dtype=np.int64)

    def _fields(self, rows: Array) -> Fields:
        return {name: rows[:, columns] for name, columns in self._columns.items()}

    def _job(self, data: Any) -> Job:
        step = partial(mujoco.mj_step, self.model, data, self.reference.frame_skip)
        if not self.task.contact_forces:
            return step

        def step_with_forces() -> None:
            step()
            mujoco.mj_rnePostConstraint(self.model, data)

        return step_with_forces

    # stepping

    def advance(self, actions: NDArray[Any]) -> Transition:
        """One step of every environment; those whose episode ends begin another at once."""
        self._controls.write(actions)
        self._pool.run()
        self._gather.read(self._buffer)
        rewards, terminated = self.task.judge(self._mark, self._now, actions)
        observations = self.task.observe(self._now)
        self._mark = self.task.mark(self._now)
        self._lengths += 1
        self._returns += rewards
        truncated = self._lengths >= self._limit
        ended = np.flatnonzero(terminated | truncated)
        final, returns, lengths = observations[ended], self._returns[ended], self._lengths[ended]
        if len(ended):
            observations[ended] = self._restart(ended)
        return Transition(observations, rewards, terminated, truncated, ended, final, returns, lengths)

    def _restart(self, which: NDArray[np.intp]) -> Array:
        """New episodes in some environments; returns their first observations."""
        for i in which:
            data = self.data[i]
            mujoco.mj_resetData(self.model, data)
            data.qpos[:], data.qvel[:] = self.task.initial(self._generators[i])
            mujoco.mj_forward(self.model, data)
        now = self._fields(self._gather.read_rows(which))
        self._mark[which] = self.task.mark(now)
        self._returns[which] = 0
        self._lengths[which] = 0
        return self.task.observe(now)

    def step_async(self, actions: NDArray[Any]) -> None:
        actions = np.asarray(actions)
        expected = (self.num_envs, self.model.nu)
        if actions.shape != expected:
            raise ValueError(f"actions must have shape {expected}, not {actions.shape}")
        if not math.isfinite(actions.sum()):
            for i in np.flatnonzero(~np.isfinite(actions).all(1)):
                raise ValueError(f"the action of environment {i} is not finite: {actions[i].tolist()}")
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        step = self.advance(self._actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for k, i in enumerate(step.ended):
            infos[i] = {
                "terminal_observation": step.final_observations[k],
                "TimeLimit.truncated": bool(step.truncated[i] and not step.terminated[i]),
                "episode": {
                    "r": float(step.returns[k]),
                    "l": int(step.lengths[k]),
                    "t": round(time.time() - self._started, 6),
                },
            }
        return step.observations, step.rewards, step.terminated | step.truncated, infos

    def reset(self) -> Array:
        """New episodes everywhere; environments that `seed()` named get their generator anew."""
        for i, seed in enumerate(self._seeds):
            if seed is not None:
                self._generators[i] = seeding.np_random(seed)[0]
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self._restart(np.arange(self.num_envs))

    def close(self) -> None:
        self._pool.close()
        self.wrapped.close()

    # state

    def get_state(self) -> dict[str, Any]:
        """Everything that decides how the environments go on: arrays, and the generators' states."""
        physics = np.empty((self.num_envs, mujoco.mj_stateSize(self.model, PHYSICS)))
        for row, data in zip(physics, self.data, strict=True):
            mujoco.mj_getState(self.model, data, row, PHYSICS)
        return {
            "physics": physics,
            "mark": self._mark.copy(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "generators": [generator.bit_generator.state for generator in self._generators],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from `get_state()`, bit for bit."""
        expected = (self.num_envs, mujoco.mj_stateSize(self.model, PHYSICS))
        if np.shape(state["physics"]) != expected:
            raise ValueError(f"this state has shape {np.shape(state['physics'])}, these environments need {expected}")
        for row, data in zip(np.asarray(state["physics"]), self.data, strict=True):
            mujoco.mj_setState(self.model, data, row, PHYSICS)
        self._mark = np.array(state["mark"])
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.bit_generator.state = saved

    # what SB3 asks of its environments

    @contextmanager
    def _as(self, index: int) -> Iterator[Any]:
        """Inside, the reference environment is the one of this index."""
        own = self.reference.data, self.reference._np_random
        self.reference.data, self.reference._np_random = self.data[index], self._generators[index]
        try:
            yield self.wrapped
        finally:
            self.reference.data, self.reference._np_random = own

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        found = []
        for index in self._get_indices(indices):
            with self._as(index) as env:
                found.append(env.get_wrapper_attr(attr_name))
        return found

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set a constant of the task, which all environments share."""
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise ValueError(f"{attr_name!r} is shared by all environments: it cannot be set for some of them")
        setattr(self.reference, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        if method_name in ("reset", "step"):
            raise ValueError(f"env_method cannot call {method_name!r}: {method_name} the vector environment instead")
        results = []
        for index in self._get_indices(indices):
            with self._as(index) as env:
                results.append(env.get_wrapper_attr(method_name)(*args, **kwargs))
        return results

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """True for Monitor, whose episode statistics are built in."""
        return [issubclass(Monitor, wrapper_class)] * len(list(self._get_indices(indices)))

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """The picture of one environment, `render_index`."""
        data = self.reference.data
        mujoco.mj_copyData(data, self.model, self.data[self.render_index])
        mujoco.mj_forward(self.model, data)
        return [self.wrapped.render()]

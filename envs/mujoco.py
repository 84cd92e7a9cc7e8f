"""Many MuJoCo environments, stepped natively in threads, identical to gymnasium's to the last bit.

The physics of all environments is one `mujoco.batch.Batch`: MuJoCo's own threads step the simulations without the
interpreter, and their states are rows of one array.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils import seeding
from mujoco.batch import Batch, SimulationError
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from geonpg.errors import Refused

from .balance import InvertedDoublePendulum, InvertedPendulum, Reacher
from .locomotion import Ant, HalfCheetah, Humanoid, HumanoidStandup, Swimmer, Upright
from .reference import PHYSICS, Infos, check_keywords, quietly
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


class Transition(NamedTuple):
    """One step of all environments. `observations` are already those of new episodes where one has ended."""

    observations: Array
    rewards: Array
    terminated: Flags
    truncated: Flags
    dones: Flags
    ended: NDArray[np.intp]  # the environments whose episode has ended; what follows has one row for each of them
    final_observations: Array
    returns: Array
    lengths: NDArray[np.int64]
    infos: Sequence[dict[str, Any]] = ()  # gymnasium's own, one for each environment, where they were asked for


NO_EPISODE_ENDED = np.empty((0, 0)), np.empty(0), np.empty(0, dtype=np.int64)


class MujocoVecEnv(VecEnv):
    """`n_envs` environments of one gymnasium MuJoCo id, with gymnasium's own keywords.

    threads: of the physics, one per core by default; everything around it is vectorised numpy. Their number changes no
    result. infos: fill in gymnasium's own infos (`x_velocity`, `reward_ctrl` …), at the price of one Python call per
    environment and step; without them an info is empty until its episode ends.
    """

    def __init__(
        self,
        env_id: str,
        n_envs: int = 1,
        *,
        threads: int = 0,
        render_mode: str | None = None,
        infos: bool = False,
        **kwargs: Any,
    ) -> None:
        if n_envs < 1:
            raise Refused(f"n_envs must be at least 1, not {n_envs}")
        if threads < 0:
            raise Refused(f"threads must be positive, or 0 for one per core, not {threads}")
        spec = gymnasium.spec(env_id)
        if str(spec.entry_point) not in TASKS:
            raise Refused(f"{env_id} has no native implementation: make_vec() falls back to SB3's environments")
        check_keywords(spec, kwargs)
        with quietly():
            self.wrapped = gymnasium.make(env_id, render_mode=render_mode, disable_env_checker=True, **kwargs)
        self.reference = cast(Any, self.wrapped.unwrapped)
        self.task = TASKS[str(spec.entry_point)](self.reference)
        # contact forces are computed from a simulation's whole MjData, so it must have one of its own
        self.batch = Batch(self.reference.model, n_envs, threads, persistent=self.task.contact_forces or infos)
        self.render_index = 0
        self._limit = int(getattr(self.wrapped.spec, "max_episode_steps", None) or 2**62)
        self._blank = self.batch.state[0].copy()  # a simulation as mj_resetData leaves it
        self._now, self._controls = self.task.fields(self.batch), self.batch.bind("ctrl")
        self._mark, self._returns = np.zeros(n_envs), np.zeros(n_envs)
        # Steps taken in all, the clock at the beginning of each episode, and when the first of them is due to end.
        self._clock, self._born, self._due = 0, np.zeros(n_envs, dtype=np.int64), self._limit
        self._nobody = np.zeros(n_envs, dtype=np.bool_)
        self._nobody.flags.writeable = False  # it is handed out
        self._generators = [seeding.np_random()[0] for _ in range(n_envs)]
        self._started = time.time()
        self._infos = Infos(self.reference, self.batch) if infos else None
        super().__init__(n_envs, self.wrapped.observation_space, self.wrapped.action_space)

    def advance(self, actions: NDArray[Any]) -> Transition:
        """One step of every environment; those whose episode ends begin another at once."""
        self._controls[:] = actions
        try:
            self.batch.step(nstep=self.reference.frame_skip)
        except SimulationError as error:
            raise RuntimeError(f"environment {error.ids[0]} failed while stepping: {error}") from error
        if self.task.contact_forces:
            self._measure_contacts()
        infos = self._infos.of_step(actions) if self._infos is not None else ()
        rewards, terminated = self.task.judge(self._mark, self._now, actions)
        observations = self.task.observe(self._now)
        self._mark = self.task.mark(self._now)
        self._returns += rewards
        self._clock += 1
        truncated, dones = self._nobody, terminated
        if self._clock >= self._due:  # or nobody's time can be up
            truncated = self._clock - self._born >= self._limit
            dones = terminated | truncated
        ended, episodes = dones.nonzero()[0], NO_EPISODE_ENDED
        if len(ended):
            episodes = observations[ended], self._returns[ended], self._clock - self._born[ended]
            observations[ended] = self._restart(ended)
        elif self._infos is not None:
            self._infos.remember()
        return Transition(observations, rewards, terminated, truncated, dones, ended, *episodes, infos)

    def _measure_contacts(self) -> None:
        """As gymnasium does after every step; the batch itself computes no contact forces."""
        model, data = self.reference.model, self.reference.data
        for i, forces in enumerate(self._now["cfrc_ext"]):
            self.batch.get_data(i, data)
            mujoco.mj_rnePostConstraint(model, data)
            forces[:] = data.cfrc_ext.reshape(-1)

    def _restart(self, which: NDArray[np.intp]) -> Array:
        """New episodes in some environments; returns their first observations."""
        self.batch.state[which] = self._blank
        for i in which:
            self._now["qpos"][i], self._now["qvel"][i] = self.task.initial(self._generators[i])
        if self.task.contact_forces:
            self._now["cfrc_ext"][which] = 0  # computed after a step only
        now = self._look_again(which)
        self._returns[which] = 0
        self._born[which] = self._clock
        self._due = int(self._born.min()) + self._limit
        if self._infos is not None:
            for i, info in self._infos.of_reset(which).items():
                self.reset_infos[i] = info
        return self.task.observe(now)

    def _look_again(self, which: NDArray[np.intp]) -> Fields:
        """What the tasks see of some environments whose state was set, which the next reward compares with."""
        if not self.task.joints_only:
            self.batch.forward(which)
        now = {name: field[which] for name, field in self._now.items()}
        self._mark[which] = self.task.mark(now)
        if self._infos is not None:
            self._infos.remember()
        return now

    def step_async(self, actions: NDArray[Any]) -> None:
        actions = np.asarray(actions)
        if actions.shape != self._controls.shape:
            raise Refused(f"actions must have shape {self._controls.shape}, not {actions.shape}")
        # the cheap test first; it also fails for numbers whose square overflows
        if not math.isfinite(np.vdot(actions, actions)) and not np.isfinite(actions).all():
            i = int(np.argmin(np.isfinite(actions).all(1)))
            raise Refused(f"the action of environment {i} is not finite: {actions[i].tolist()}")
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        step = self.advance(self._actions)
        infos: list[dict[str, Any]] = list(step.infos) or [{} for _ in range(self.num_envs)]
        for k, i in enumerate(step.ended):
            infos[i] |= {
                "terminal_observation": step.final_observations[k],
                "TimeLimit.truncated": bool(step.truncated[i] and not step.terminated[i]),
                "episode": {
                    "r": float(step.returns[k]),
                    "l": int(step.lengths[k]),
                    "t": round(time.time() - self._started, 6),
                },
            }
        return step.observations, step.rewards, step.dones, infos

    def reset(self) -> Array:
        """New episodes everywhere; environments that `seed()` named get their generator anew."""
        return self.reset_some(np.arange(self.num_envs))

    def reset_some(self, which: NDArray[np.intp]) -> Array:
        """The same in some environments; returns the observations of all."""
        for i in which:
            if self._seeds[i] is not None:
                self._generators[i] = seeding.np_random(self._seeds[i])[0]
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._restart(which)
        return self.task.observe(self._now)

    def close(self) -> None:
        self.wrapped.close()

    def get_state(self) -> dict[str, Any]:
        """Everything that decides how the environments go on: arrays, and the generators' states."""
        return {
            "physics": self.batch.state.copy(),
            "mark": self._mark.copy(),
            "returns": self._returns.copy(),
            "lengths": self._clock - self._born,
            "generators": [generator.bit_generator.state for generator in self._generators],
            **({} if self._infos is None else {"infos": self._infos.before}),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from `get_state()`, bit for bit."""
        shape, expected = np.shape(state["physics"]), self.batch.state.shape
        if shape != expected:
            raise Refused(f"this state has shape {shape}, these environments need {expected}")
        self.batch.state[:] = state["physics"]
        self._mark = np.array(state["mark"], dtype=np.float64)
        self._returns[:] = state["returns"]
        self._born[:] = self._clock - np.asarray(state["lengths"])
        self._due = int(self._born.min()) + self._limit
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.bit_generator.state = saved
        if self._infos is not None:
            self._infos.restore(state.get("infos"))

    @contextmanager
    def _as(self, index: int, sets_state: bool = False) -> Iterator[Any]:
        """Inside, gymnasium's environment is in the state of ours; what is changed of it there is taken over."""
        model, data, row = self.reference.model, self.reference.data, self.batch.state[index]
        mujoco.mj_setState(model, data, row, PHYSICS)
        mujoco.mj_forward(model, data)
        before, after = np.empty_like(row), np.empty_like(row)
        mujoco.mj_getState(model, data, before, PHYSICS)
        self.reference._np_random = self._generators[index]
        yield self.wrapped
        mujoco.mj_getState(model, data, after, PHYSICS)
        if sets_state or not np.array_equal(before, after):  # to set the same state is a mj_forward too
            row[:] = after
            self._look_again(np.array([index]))

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        found = []
        for index in self._get_indices(indices):
            with self._as(index) as env:
                found.append(env.get_wrapper_attr(attr_name))
        return found

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set a constant of the task, which all environments share."""
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise Refused(f"{attr_name!r} is shared by all environments: it cannot be set for some of them")
        setattr(self.reference, attr_name, value)
        self.task = type(self.task)(self.reference)  # a task keeps some constants in a form of its own

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        if method_name in ("reset", "step"):
            raise Refused(f"env_method cannot call {method_name!r}: {method_name} the vector environment instead")
        results = []
        for index in self._get_indices(indices):
            with self._as(index, sets_state=method_name == "set_state") as env:
                results.append(env.get_wrapper_attr(method_name)(*args, **kwargs))
        return results

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """True for Monitor, whose episode statistics are built in."""
        return [issubclass(Monitor, wrapper_class)] * len(list(self._get_indices(indices)))

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """The picture of one environment, `render_index`."""
        return [self.picture(self.render_index)]

    def picture(self, index: int) -> Any:
        """What gymnasium's environment renders of one of ours."""
        with self._as(index):
            return self.reference.render()

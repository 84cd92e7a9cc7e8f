"""Many MuJoCo environments, stepped natively in threads, identical to gymnasium's to the last bit.

The physics of all environments is one `mujoco.batch.Batch`: MuJoCo's own threads step the simulations without the
interpreter, and their states are rows of one array.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

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

from .arrays import Array, Env, Flags, Indices, Info, Numbers
from .episodes import Episodes
from .native import TASKS
from .reference import PHYSICS, Infos, Reference, check_keywords, quietly
from .task import Fields


class Transition(NamedTuple):
    """One step of all environments. `observations` are already those of new episodes where one has ended."""

    observations: Array
    rewards: Array
    terminated: Flags
    truncated: Flags
    dones: Flags
    ended: Indices  # the environments whose episode has ended; what follows has one row for each of them
    final_observations: Array
    returns: Array
    lengths: NDArray[np.int64]
    infos: Sequence[Info] = ()  # gymnasium's own, one for each environment, where they were asked for


NO_EPISODE_ENDED = np.empty((0, 0)), np.empty(0), np.empty(0, dtype=np.int64)


class MujocoState(TypedDict):
    """Everything that decides how the environments continue, as checkpoints store it."""

    physics: Array  # [n, size of MuJoCo's state]
    mark: Array  # `Task.progress`, under its first name
    returns: Array
    lengths: NDArray[np.int64]
    generators: list[Mapping[str, Any]]  # numpy's own form
    infos: NotRequired[Mapping[str, Array]]


class MujocoVecEnv(VecEnv):
    """Environments of one gymnasium MuJoCo id, stepped together.

    env_id: one of the twenty ids that run natively, such as Walker2d-v4; see `TASKS`.
    n_envs: environments stepped together; 8 to 64 for training, thousands are possible.
    threads: threads of the physics, from 1 to the number of cores; 0 for one per core. Changes no result.
    render_mode: gymnasium's, "rgb_array", "depth_array" or "human"; None to render nothing.
    infos: fill in gymnasium's own infos (`x_velocity`, `reward_ctrl` …), for one Python call per environment and step;
        without them an info is empty until its episode ends.
    kwargs: gymnasium's own keywords of this id, such as `ctrl_cost_weight=0.5` or `max_episode_steps=500`.
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
        self.reference = cast(Reference, self.wrapped.unwrapped)  # as its entry point is one of ours
        self.task = TASKS[str(spec.entry_point)](self.reference)
        # contact forces are computed from a simulation's whole MjData, so it must have one of its own
        self.batch = Batch(self.reference.model, n_envs, threads, persistent=self.task.contact_forces or infos)
        self.render_index = 0
        self._physics_after_reset = self.batch.state[0].copy()  # of mj_resetData
        self._fields, self._controls = self.task.bind(self.batch), self.batch.bind("ctrl")
        self._progress = np.zeros(n_envs)
        self._episodes = Episodes(n_envs, getattr(self.wrapped.spec, "max_episode_steps", None))
        self._generators = [seeding.np_random()[0] for _ in range(n_envs)]
        self._made_at = time.time()
        self._infos = Infos(self.reference, self.batch) if infos else None
        super().__init__(n_envs, self.wrapped.observation_space, self.wrapped.action_space)

    def advance(self, actions: Numbers) -> Transition:
        """Step every environment; those whose episode ends begin another at once."""
        self._controls[:] = actions
        try:
            self.batch.step(nstep=self.reference.frame_skip)
        except SimulationError as error:
            raise RuntimeError(f"environment {error.ids[0]} failed while stepping: {error}") from error
        if self.task.contact_forces:
            self._measure_contacts()
        infos = self._infos.of_step(actions) if self._infos is not None else ()
        rewards, terminated = self.task.outcome(self._progress, self._fields, actions)
        observations = self.task.observe(self._fields)
        self._progress = self.task.progress(self._fields)
        truncated = self._episodes.add_step(rewards)
        dones = terminated | truncated
        ended, finals = dones.nonzero()[0], NO_EPISODE_ENDED
        if len(ended):
            finals = observations[ended], self._episodes.returns[ended], self._episodes.lengths[ended]
            observations[ended] = self._start_episodes(ended)
        elif self._infos is not None:
            self._infos.remember()
        return Transition(observations, rewards, terminated, truncated, dones, ended, *finals, infos)

    def _measure_contacts(self) -> None:
        """Compute contact forces, as gymnasium does after every step; the batch itself does not."""
        model, data = self.reference.model, self.reference.data
        for i, forces in enumerate(self._fields["cfrc_ext"]):
            self.batch.get_data(i, data)
            mujoco.mj_rnePostConstraint(model, data)
            forces[:] = data.cfrc_ext.reshape(-1)

    def _start_episodes(self, which: Indices) -> Array:
        """Begin new episodes in some environments; return their first observations."""
        self.batch.state[which] = self._physics_after_reset
        for i in which:
            self._fields["qpos"][i], self._fields["qvel"][i] = self.task.first_state(self._generators[i])
        if self.task.contact_forces:
            self._fields["cfrc_ext"][which] = 0  # computed after a step only
        fields = self._refresh(which)
        self._episodes.restart(which)
        if self._infos is not None:
            for i, info in self._infos.of_reset(which).items():
                self.reset_infos[i] = info
        return self.task.observe(fields)

    def _refresh(self, which: Indices) -> Fields:
        """Bring everything up to date in some environments whose state was set; return their fields."""
        if not self.task.joints_only:
            self.batch.forward(which)
        fields = {name: field[which] for name, field in self._fields.items()}
        self._progress[which] = self.task.progress(fields)
        if self._infos is not None:
            self._infos.remember()
        return fields

    def step_async(self, actions: Numbers) -> None:
        """Take the actions of the next step; refuse those of another shape, and NaN and infinity."""
        actions = np.asarray(actions)
        if actions.shape != self._controls.shape:
            raise Refused(f"actions must have shape {self._controls.shape}, not {actions.shape}")
        # the cheap test first; it also fails for numbers whose square overflows
        if not math.isfinite(np.vdot(actions, actions)) and not np.isfinite(actions).all():
            i = int(np.argmin(np.isfinite(actions).all(1)))
            raise Refused(f"the action of environment {i} is not finite: {actions[i].tolist()}")
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step every environment, as SB3 expects it: observations, rewards, dones and infos."""
        step = self.advance(self._actions)
        infos: list[Info] = list(step.infos) or [{} for _ in range(self.num_envs)]
        for k, i in enumerate(step.ended):
            infos[i] |= {
                "terminal_observation": step.final_observations[k],
                "TimeLimit.truncated": bool(step.truncated[i] and not step.terminated[i]),
                "episode": {
                    "r": float(step.returns[k]),
                    "l": int(step.lengths[k]),
                    "t": round(time.time() - self._made_at, 6),
                },
            }
        return step.observations, step.rewards, step.dones, infos

    def reset(self) -> Array:
        """Begin new episodes everywhere; environments that `seed()` named get new generators."""
        return self.reset_some(np.arange(self.num_envs))

    def reset_some(self, which: Indices) -> Array:
        """Begin new episodes in some environments; return the observations of all."""
        for i in which:
            if self._seeds[i] is not None:
                self._generators[i] = seeding.np_random(self._seeds[i])[0]
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._start_episodes(which)
        return self.task.observe(self._fields)

    def close(self) -> None:
        """Close what gymnasium's environment has opened to render."""
        self.wrapped.close()

    def get_state(self) -> MujocoState:
        """Return everything that decides how the environments continue."""
        state: MujocoState = {
            "physics": self.batch.state.copy(),
            "mark": self._progress.copy(),
            "returns": self._episodes.returns.copy(),
            "lengths": self._episodes.lengths,
            "generators": [generator.bit_generator.state for generator in self._generators],
        }
        if self._infos is not None:
            state["infos"] = self._infos.before
        return state

    def set_state(self, state: MujocoState) -> None:
        """Continue from `get_state()`, bit for bit."""
        shape, expected = np.shape(state["physics"]), self.batch.state.shape
        if shape != expected:
            raise Refused(f"this state has shape {shape}, these environments need {expected}")
        self.batch.state[:] = state["physics"]
        self._progress = np.array(state["mark"], dtype=np.float64)
        self._episodes.restore(state["returns"], state["lengths"])
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.bit_generator.state = saved
        if self._infos is not None:
            self._infos.restore(state.get("infos"))

    @contextmanager
    def _reference_at(self, index: int, sets_state: bool = False) -> Iterator[Env]:
        """Put gymnasium's environment in the state of one of ours, and take over what is changed of it."""
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
            self._refresh(np.array([index]))

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of gymnasium's environment in the state of each of ours."""
        found = []
        for index in self._get_indices(indices):
            with self._reference_at(index) as env:
                found.append(env.get_wrapper_attr(attr_name))
        return found

    def set_attr(self, attr_name: str, value: object, indices: VecEnvIndices = None) -> None:
        """Set a constant of the task, which all environments share."""
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise Refused(f"{attr_name!r} is shared by all environments: it cannot be set for some of them")
        setattr(self.reference, attr_name, value)
        self.task = type(self.task)(self.reference)  # a task keeps some constants in a form of its own

    def env_method(self, method_name: str, *args: object, indices: VecEnvIndices = None, **kwargs: object) -> list[Any]:
        """Call a method of gymnasium's environment in the state of each of ours, and take over what it changes."""
        if method_name in ("reset", "step"):
            raise Refused(f"env_method cannot call {method_name!r}: {method_name} the vector environment instead")
        results = []
        for index in self._get_indices(indices):
            with self._reference_at(index, sets_state=method_name == "set_state") as env:
                results.append(env.get_wrapper_attr(method_name)(*args, **kwargs))
        return results

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """Return True for Monitor, whose episode statistics are built in."""
        return [issubclass(Monitor, wrapper_class)] * len(list(self._get_indices(indices)))

    def get_images(self) -> Sequence[Numbers | None]:
        """Return the picture of one environment, `render_index`."""
        return [self.picture(self.render_index)]

    def picture(self, index: int) -> Numbers | None:
        """Render one environment as gymnasium does."""
        with self._reference_at(index):
            return self.reference.render()

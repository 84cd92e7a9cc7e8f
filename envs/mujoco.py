"""Many MuJoCo environments, stepped by compiled code in threads, identical to gymnasium's to the last bit."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils import seeding
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from geonpg.errors import Refused

from .arrays import Array, Env, Indices, Info, Numbers
from .native import spec_of, task_of
from .physics import PHYSICS, Acting, Floats, Integers, Physics, Recording, Simulations
from .reference import Infos, Reference, check_keywords, quietly
from .rollouts import Layer, ObservationScale, RolledOut, check_recording, packed, policy_mean, rolled_out
from .task import physics_of
from .transitions import MujocoState, Transition


class MujocoVecEnv(VecEnv):
    """Environments of one gymnasium MuJoCo id, stepped together.

    env_id: one of the twenty ids that run natively, such as Walker2d-v4; see `TASKS`. Or that of a `Robot` of your own.
    n_envs: environments stepped together; 8 to 64 for training, thousands are possible.
    threads: threads of the physics, from 1 to the number of cores; 0 for one per core. Changes no result.
    render_mode: gymnasium's, "rgb_array", "depth_array" or "human"; None to render nothing.
    infos: fill in gymnasium's own infos (`x_velocity`, `reward_ctrl` …), for one Python call per environment and step;
        without them an info is empty until its episode ends.
    kwargs: the id's own keywords, gymnasium's or a robot's, such as `ctrl_cost_weight=0.5` or `max_episode_steps=500`.
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
        spec = spec_of(env_id)
        check_keywords(spec, kwargs)
        with quietly():
            self.wrapped = gymnasium.make(env_id, render_mode=render_mode, disable_env_checker=True, **kwargs)
        self.reference = cast(Reference, self.wrapped.unwrapped)  # as its entry point is one of ours
        self.task = task_of(env_id, self.reference)
        self.render_index = 0
        self.simulations = Simulations(self._physics(), n_envs, threads)
        self.simulations.generators = [seeding.np_random()[0] for _ in range(n_envs)]
        self._controls = np.zeros((1, n_envs, self.reference.model.nu))
        self._recording = Recording(1, n_envs, self.simulations.observations.shape[1])
        self._made_at = time.time()
        self._infos = Infos(self.reference, self.simulations) if infos else None
        super().__init__(n_envs, self.wrapped.observation_space, self.wrapped.action_space)

    def _physics(self) -> Physics:
        """Return what the simulations have in common."""
        size = gymnasium.spaces.flatdim(self.wrapped.observation_space)
        return physics_of(self.task, self.reference, size, getattr(self.wrapped.spec, "max_episode_steps", None))

    def advance(self, actions: Numbers) -> Transition:
        """Step every environment; those whose episode ends begin another at once."""
        self._controls[0] = actions
        infos = self._infos.of_step(actions) if self._infos is not None else ()
        recording = self._recording
        self.simulations.record(recording)
        self.simulations.take(self._controls, single=actions.dtype == np.float32)
        dones = recording.dones[0]
        ended = dones.nonzero()[0]
        self._note_resets(ended)
        return Transition(
            recording.after[0].copy(),
            recording.rewards[0].copy(),
            recording.terminated[0].astype(np.bool_),
            recording.truncated[0].astype(np.bool_),
            dones,
            ended,
            recording.finals[0, ended],
            recording.final_returns[0, ended],
            recording.final_lengths[0, ended],
            infos,
        )

    @property
    def can_roll(self) -> bool:
        """Whether `roll` may stand for steps: infos are made step by step, and a subclass may do anything."""
        return self._infos is None and type(self) is MujocoVecEnv

    @property
    def busy_cores(self) -> Integers:
        """How many cores something else needs, [1]: as long as it says so, as many threads hold back."""
        return self.simulations.busy

    def roll(
        self,
        layers: Sequence[Layer],
        noise: Floats,
        seen: Array,
        actions: Floats,
        scale: ObservationScale | None = None,
        span: slice | None = None,
    ) -> RolledOut:
        """Let a Gaussian policy act through a whole rollout, in one call of compiled code.

        The result is that of as many `step`s with the policy's actions, to the last bit.

        layers: of the policy; see `rollouts.Layer`.
        noise: added to the means, [steps, environments, size].
        seen: filled in with the observations that the policy saw, [steps, environments, size].
        actions: filled in with its actions, not yet within bounds, [steps, environments, size].
        scale: what observations are normalised by before the policy sees them.
        span: the steps to take now, if not all.
        """
        space, size = self.action_space, seen.shape[-1]
        assert isinstance(space, gymnasium.spaces.Box)
        mean, deviation, clip = scale or ObservationScale(np.zeros(size), np.ones(size), math.inf)
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        now = span or slice(None)
        noise, seen, actions = noise[now], seen[now], actions[now]
        recording = Recording(len(noise), self.num_envs, size)
        self.simulations.record(recording)
        self.simulations.act(Acting(*packed(layers), low, high, mean, deviation, clip), noise, seen, actions)
        if np.isnan(actions).any():
            step, i, _ = np.argwhere(np.isnan(actions))[0]
            check_recording(recording, step)  # of an observation that is NaN the policy makes such actions
            raise not_finite(i, actions[step, i].clip(low, high))
        return rolled_out(recording)

    def policy_mean(self, layers: Sequence[Layer]) -> Callable[[Numbers], Floats]:
        """Return the function by which `roll` computes means of actions, for batches of observations."""
        return policy_mean(layers)

    def _note_resets(self, which: Indices) -> None:
        """Keep gymnasium's infos of episodes that have just begun, where they were asked for."""
        if self._infos is not None:
            for i, info in self._infos.of_reset(which).items():
                self.reset_infos[i] = info

    def step_async(self, actions: Numbers) -> None:
        """Take the actions of the next step; refuse those of another shape, and NaN and infinity."""
        actions = np.asarray(actions)
        if actions.shape != self._controls.shape[1:]:
            raise Refused(f"actions must have shape {self._controls.shape[1:]}, not {actions.shape}")
        # the cheap test first; it also fails for numbers whose square overflows
        if not math.isfinite(np.vdot(actions, actions)) and not np.isfinite(actions).all():
            i = int(np.argmin(np.isfinite(actions).all(1)))
            raise not_finite(i, actions[i])
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
        generators = list(self.simulations.generators)
        for i in which:
            if self._seeds[i] is not None:
                generators[i] = seeding.np_random(self._seeds[i])[0]
        self.simulations.generators = generators
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self.simulations.reset(which)
        self._note_resets(which)
        return self.simulations.observations.copy()

    def close(self) -> None:
        """End the threads, and close what gymnasium's environment has opened to render."""
        self.simulations.close()
        self.wrapped.close()

    def get_state(self) -> MujocoState:
        """Return everything that decides how the environments continue."""
        simulations = self.simulations
        state: MujocoState = {
            "physics": simulations.physics.copy(),
            "observations": simulations.observations.copy(),
            "mark": simulations.before.copy(),
            "returns": simulations.returns.copy(),
            "lengths": simulations.lengths.copy(),
            "generators": [generator.bit_generator.state for generator in simulations.generators],
        }
        if self._infos is not None:
            state["infos"] = {name: kept.copy() for name, kept in self._infos.before.items()}
        return state

    def set_state(self, state: MujocoState) -> None:
        """Continue from `get_state()`, bit for bit."""
        simulations = self.simulations
        shape, expected = np.shape(state["physics"]), simulations.physics.shape
        if shape != expected:
            raise Refused(f"this state has shape {shape}, these environments need {expected}")
        simulations.physics[:] = state["physics"]
        simulations.observations[:] = state["observations"]
        simulations.before[:] = state["mark"]
        simulations.returns[:], simulations.lengths[:] = state["returns"], state["lengths"]
        for generator, saved in zip(simulations.generators, state["generators"], strict=True):
            generator.bit_generator.state = saved
        if self._infos is not None:
            self._infos.restore(state.get("infos"))

    @contextmanager
    def _reference_at(self, index: int, sets_state: bool = False) -> Iterator[Env]:
        """Put gymnasium's environment in the state of one of ours, and take over what is changed of it."""
        model, data, row = self.reference.model, self.reference.data, self.simulations.physics[index]
        mujoco.mj_setState(model, data, row, PHYSICS)
        mujoco.mj_forward(model, data)
        before, after = np.empty_like(row), np.empty_like(row)
        mujoco.mj_getState(model, data, before, PHYSICS)
        self.reference._np_random = self.simulations.generators[index]
        yield self.wrapped
        mujoco.mj_getState(model, data, after, PHYSICS)
        if sets_state or not np.array_equal(before, after):  # to set the same state is a mj_forward too
            row[:] = after
            self.simulations.refresh([index])
            if self._infos is not None:
                self._infos.refresh(index)

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
        self.simulations.set_constants(self.task.constants())

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


def not_finite(index: int, action: Numbers) -> Refused:
    """Return the refusal of an action that is NaN or infinite."""
    return Refused(f"the action of environment {index} is not finite: {action.tolist()}")

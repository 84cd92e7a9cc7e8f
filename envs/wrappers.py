"""Wrappers that a run may ask for, each part of the run's state."""

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from geonpg.errors import Refused

from .arrays import Array, Numbers, State


def state_of(venv: Any) -> State | None:
    """Return the state of environments that have one. SB3's wrappers would pass the question on and omit their own."""
    return venv.get_state() if hasattr(type(venv), "get_state") else None


def restore(venv: Any, state: State | None) -> None:
    """Continue from `state_of`, if there is a state and the environments take one."""
    if state is not None and hasattr(type(venv), "set_state"):
        venv.set_state(state)


class Frames(VecEnvWrapper):
    """Observations of the last steps side by side, the newest first; zeros before an episode.

    venv: environments whose observations are vectors.
    frames: observations shown at once; 2 to 4, since 2 show velocities and 3 accelerations.
    """

    stacks_frames = True  # for agents, which know no wrapper of ours by its class

    def __init__(self, venv: VecEnv, frames: int = 2) -> None:
        space = venv.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise Refused(f"Frames takes observations that are vectors, not {space}")
        if frames < 1:
            raise Refused(f"frames must be at least 1, not {frames}")
        low, high = (np.tile(bound.astype(np.float64), frames) for bound in (space.low, space.high))
        wide = spaces.Box(low, high, dtype=np.float64)
        super().__init__(venv, observation_space=wide)
        self._frames = np.zeros((venv.num_envs, frames, space.shape[0]))

    def reset(self) -> Array:
        """Begin new episodes, with zeros in place of earlier observations."""
        self._frames[:] = 0
        self._frames[:, 0] = np.asarray(self.venv.reset())
        return self._frames.reshape(self.num_envs, -1).copy()

    def step_wait(self) -> VecEnvStepReturn:
        """Step the environments and put each new observation in front of the earlier ones."""
        observations, rewards, dones, infos = self.venv.step_wait()
        self._frames[:, 1:] = self._frames[:, :-1].copy()
        for i in np.flatnonzero(dones):
            final = [infos[i]["terminal_observation"], *self._frames[i, 1:]]
            infos[i]["terminal_observation"] = np.concatenate(final)
            self._frames[i] = 0
        self._frames[:, 0] = np.asarray(observations)
        return self._frames.reshape(self.num_envs, -1).copy(), rewards, dones, infos

    def get_state(self) -> State:
        """Return the observations shown, and the environments' own state if they have one."""
        return {"seen": self._frames.copy(), "venv": state_of(self.venv)}

    def set_state(self, state: State) -> None:
        """Continue from `get_state()`, bit for bit."""
        self._frames[:] = state["seen"]
        restore(self.venv, state["venv"])


class ScaleActions(VecEnvWrapper):
    """Actions in [-1, 1], scaled to the environment's bounds.

    venv: environments whose actions lie in a bounded Box.
    """

    def __init__(self, venv: VecEnv) -> None:
        space = venv.action_space
        if not isinstance(space, spaces.Box) or not space.is_bounded():
            raise Refused(f"scale_actions takes actions in a bounded box, not {space}")
        super().__init__(venv, action_space=spaces.Box(-1.0, 1.0, space.shape, np.float32))
        self._low, self._high = space.low, space.high
        self.middle, self.half = (space.high + space.low) / 2, (space.high - space.low) / 2

    def reset(self) -> VecEnvObs:
        """Begin new episodes."""
        return self.venv.reset()

    def step_async(self, actions: Numbers) -> None:
        """Scale the actions of the next step; those beyond [-1, 1] stay within the bounds."""
        self.venv.step_async(self.scaled(actions))

    def scaled(self, actions: Numbers) -> Numbers:
        """Map actions in [-1, 1] to the environment's bounds, for trained policies too (scripts/models/policy.py)."""
        return (self.middle + self.half * actions).clip(self._low, self._high)

    def step_wait(self) -> VecEnvStepReturn:
        """Step the environments."""
        return self.venv.step_wait()

    def get_state(self) -> State:
        """Return the environments' own state, if they have one."""
        return {"venv": state_of(self.venv)}

    def set_state(self, state: State) -> None:
        """Continue from `get_state()`, bit for bit."""
        restore(self.venv, state["venv"])

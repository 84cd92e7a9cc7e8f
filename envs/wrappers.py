"""Wrappers that a run may ask for, each part of the run's state."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from geonpg.errors import Refused

from .task import Array


def state_of(venv: Any) -> dict[str, Any] | None:
    """The state of environments that can tell it. SB3's wrappers would pass the question on and forget their own."""
    return venv.get_state() if hasattr(type(venv), "get_state") else None


def restore(venv: Any, state: dict[str, Any] | None) -> None:
    """Go on from `state_of`, where there is something to go on from."""
    if state is not None and hasattr(type(venv), "set_state"):
        venv.set_state(state)


class Frames(VecEnvWrapper):
    """The observations of the last `frames` steps side by side, the newest first; zeros before an episode."""

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
        self._seen = np.zeros((venv.num_envs, frames, space.shape[0]))

    def reset(self) -> Array:
        self._seen[:] = 0
        self._seen[:, 0] = np.asarray(self.venv.reset())
        return self._seen.reshape(self.num_envs, -1).copy()

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        self._seen[:, 1:] = self._seen[:, :-1].copy()
        for i in np.flatnonzero(dones):
            final = [infos[i]["terminal_observation"], *self._seen[i, 1:]]
            infos[i]["terminal_observation"] = np.concatenate(final)
            self._seen[i] = 0
        self._seen[:, 0] = np.asarray(observations)
        return self._seen.reshape(self.num_envs, -1).copy(), rewards, dones, infos

    def get_state(self) -> dict[str, Any]:
        return {"seen": self._seen.copy(), "venv": state_of(self.venv)}

    def set_state(self, state: dict[str, Any]) -> None:
        self._seen[:] = state["seen"]
        restore(self.venv, state["venv"])


class ScaleActions(VecEnvWrapper):
    """Actions in [-1, 1], scaled to the environment's bounds."""

    def __init__(self, venv: VecEnv) -> None:
        space = venv.action_space
        if not isinstance(space, spaces.Box) or not space.is_bounded():
            raise Refused(f"scale_actions takes actions in a bounded box, not {space}")
        super().__init__(venv, action_space=spaces.Box(-1.0, 1.0, space.shape, np.float32))
        self._low, self._high = space.low, space.high
        self.middle, self.half = (space.high + space.low) / 2, (space.high - space.low) / 2

    def reset(self) -> Any:
        return self.venv.reset()

    def step_async(self, actions: NDArray[Any]) -> None:
        self.venv.step_async(self.scaled(actions))

    def scaled(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Bring actions in [-1, 1] to the environment's bounds."""
        return (self.middle + self.half * actions).clip(self._low, self._high)

    def step_wait(self) -> VecEnvStepReturn:
        return self.venv.step_wait()

    def get_state(self) -> dict[str, Any]:
        return {"venv": state_of(self.venv)}

    def set_state(self, state: dict[str, Any]) -> None:
        restore(self.venv, state["venv"])

"""Our environments as a gymnasium vector environment."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from geonpg.errors import Refused

from .arrays import Array, Flags, Indices, Info, Numbers
from .mujoco import MujocoVecEnv


class GymVectorEnv(VectorEnv[Array, Numbers, Array | Flags]):
    """A `MujocoVecEnv` behind gymnasium's interface; an episode that ends is followed by a new one in the same step.

    The last observation of an ended episode is in `infos["final_obs"]`, its return and length in
    `infos["final_info"]["episode"]`, each with a mask under the same name with an underscore. gymnasium's other infos
    are there if the `MujocoVecEnv` was made with `infos=True`.

    venv: the environments, with `render_mode` and `infos` of their own.
    """

    def __init__(self, venv: MujocoVecEnv) -> None:
        self.venv, self.num_envs = venv, venv.num_envs
        self.metadata = {**venv.wrapped.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode, self.spec = venv.wrapped.render_mode, venv.wrapped.spec
        self.single_observation_space = venv.observation_space
        self.single_action_space: gymnasium.Space[Numbers] = venv.action_space
        self.observation_space = batch_space(venv.observation_space, self.num_envs)
        self.action_space = batch_space(venv.action_space, self.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[Array, Info]:
        """Begin new episodes everywhere, or where `options["reset_mask"]` is true; `seed` is the first's, or all."""
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise Refused(f"reset_mask must be {self.num_envs} flags, some of them true, not {mask.tolist()}")
        if isinstance(seed, int | np.integer):
            self.venv.seed(int(seed))
        elif seed is not None:
            if len(seed) != self.num_envs:
                raise Refused(f"seed must be one number or {self.num_envs} of them, not {len(seed)}")
            self.venv._seeds = [None if one is None else int(one) for one in seed]
        which = mask.nonzero()[0]
        return self.venv.reset_some(which), self._add_reset_infos({}, which)

    def step(self, actions: Numbers) -> tuple[Array, Array, Flags, Flags, Info]:
        """Step every environment: observations, rewards, terminated, truncated and infos."""
        self.venv.step_async(actions)
        step = self.venv.advance(np.asarray(actions))
        infos: Info = {}
        finals: Info = {}
        for i, info in enumerate(step.infos):
            self._add_info(finals if step.dones[i] else infos, info, i)
        if len(step.ended):
            final = np.full(self.num_envs, None, dtype=object)
            returns, lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=np.int64)
            for k, i in enumerate(step.ended):
                final[i] = step.final_observations[k]
            returns[step.ended], lengths[step.ended] = step.returns, step.lengths
            self._add_reset_infos(infos, step.ended)  # they have begun another episode
            infos |= {"final_obs": final, "_final_obs": step.dones, "_final_info": step.dones}
            infos["final_info"] = {**finals, "episode": {"r": returns, "l": lengths}, "_episode": step.dones}
        return step.observations, step.rewards, step.terminated, step.truncated, infos

    def _add_reset_infos(self, infos: Info, which: Indices) -> Info:
        for i in which.tolist():
            self._add_info(infos, self.venv.reset_infos[i], i)
        return infos

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of every environment."""
        return tuple(self.venv.picture(i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: object) -> None:
        """Close the environments."""
        self.venv.close()

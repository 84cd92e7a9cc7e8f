"""gymnasium's own environment, of which ours is the vectorised form: how it is made, and what it tells of a step."""

import inspect
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import mujoco
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from mujoco.batch import Batch
from numpy.typing import NDArray

from geonpg.errors import Refused

# Everything that the next mj_step depends on, the solver's warm start included.
PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION


@contextmanager
def quietly() -> Iterator[None]:
    """Without what gymnasium and MuJoCo say about every v4 id: that there is a v5, and that its model is dated.

    MuJoCo would also append to a file MUJOCO_LOG.TXT in the user's folder.
    """
    handler = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(handler)


def check_keywords(spec: EnvSpec, keywords: dict[str, Any]) -> None:
    """Refuse a keyword that gymnasium's environment does not take, and name those that it takes."""
    own = inspect.signature(load_env_creator(str(spec.entry_point))).parameters
    legal = [name for name in own if name != "kwargs"]
    legal += ["width", "height", "camera_id", "camera_name", "max_geom", "visual_options", "max_episode_steps"]
    for keyword in keywords:
        if keyword not in legal:
            raise Refused(f"{spec.id} takes no keyword {keyword!r}: choose one of {', '.join(legal)}")


class Infos:
    """gymnasium's `info` of every step and reset, by gymnasium's own code.

    Its `step` looks at the simulation, has it simulated, and looks again: the simulation in between is the batch's,
    which must be persistent. This costs one Python call per environment and step.
    """

    def __init__(self, reference: Any, batch: Batch) -> None:
        self.reference, self.batch = reference, batch
        # besides the state, what gymnasium looks at before a step
        self.fields: dict[str, NDArray[np.float64]] = {name: batch.bind(name) for name in ("xpos", "xipos")}
        self.remember()

    def remember(self) -> None:
        """Take down what the next step's infos compare with."""
        self.before = {"physics": self.batch.state.copy()}
        self.before |= {name: field.copy() for name, field in self.fields.items()}

    def restore(self, before: dict[str, Any] | None) -> None:
        """Go on from `before` of an earlier time; None if it comes from environments without infos."""
        if before is None:
            self.batch.forward()
            self.remember()
        else:
            self.before = {name: np.array(before[name]) for name in ("physics", *self.fields)}

    def of_step(self, actions: NDArray[Any]) -> list[dict[str, Any]]:
        """Infos of the step that the batch has just made."""
        reference, data, infos = self.reference, self.reference.data, []
        for i, action in enumerate(actions):
            mujoco.mj_setState(reference.model, data, self.before["physics"][i], PHYSICS)
            for name in self.fields:
                getattr(data, name)[:] = self.before[name][i]
            reference.do_simulation = lambda *_, i=i: self._load(i)
            try:
                infos.append(dict(reference.step(action)[4]))
            finally:
                del reference.do_simulation
        return infos

    def _load(self, index: int) -> None:
        model, data = self.reference.model, self.reference.data
        self.batch.get_data(index, data)
        mujoco.mj_rnePostConstraint(model, data)

    def of_reset(self, which: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Infos of episodes that have just begun, by environment."""
        infos = {}
        for i in which:
            self.batch.get_data(i, self.reference.data)
            infos[int(i)] = dict(self.reference._get_reset_info())
        return infos

"""gymnasium's own environment, of which ours is the vectorised form: how it is made, and what it says of a step."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import mujoco
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from mujoco.batch import Batch

from geonpg.errors import Refused

from .arrays import Array, Info, Numbers

# Everything that the next mj_step depends on, the solver's warm start included.
PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION


class Reference(Protocol):
    """The fields of gymnasium's MuJoCo environments that we read.

    Constants of a task exist only where gymnasium's environment has them; each task reads those of its own.
    """

    model: mujoco.MjModel
    data: mujoco.MjData
    init_qpos: Array
    init_qvel: Array
    frame_skip: int
    do_simulation: Callable[..., None]
    _np_random: np.random.Generator | None

    @property
    def dt(self) -> float:
        """Seconds of simulated time in one step."""
        ...

    def step(self, action: Numbers) -> tuple[Array, np.float64, bool, bool, Info]:
        """Return observation, reward, terminated, truncated and info."""
        ...

    def render(self) -> Numbers | None:
        """Return a picture; None if a window shows it."""
        ...

    def _get_reset_info(self) -> Info: ...

    # Rewards and costs.
    _forward_reward_weight: float
    _ctrl_cost_weight: float
    _contact_cost_weight: float
    _contact_cost_range: tuple[float, float]
    _impact_cost_weight: float
    _impact_cost_range: tuple[float, float]
    _reward_dist_weight: float
    _reward_control_weight: float
    _healthy_reward: float
    # Terminations.
    _terminate_when_unhealthy: bool
    _healthy_z_range: tuple[float, float]
    _healthy_angle_range: tuple[float, float]
    _healthy_state_range: tuple[float, float]
    # Observations.
    _exclude_current_positions_from_observation: bool
    _include_cinert_in_observation: bool
    _include_cvel_in_observation: bool
    _include_qfrc_actuator_in_observation: bool
    _include_cfrc_ext_in_observation: bool
    _contact_force_range: tuple[float, float]
    _use_contact_forces: bool
    _main_body: int | str
    # Resets.
    _reset_noise_scale: float


@contextmanager
def quietly() -> Iterator[None]:
    """Silence what gymnasium and MuJoCo say about every v4 id: that there is a v5, and that its model is dated.

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


def check_keywords(spec: EnvSpec, keywords: Iterable[str]) -> None:
    """Refuse a keyword that gymnasium's environment does not take, and list those that it takes."""
    own = inspect.signature(load_env_creator(str(spec.entry_point))).parameters
    legal = [name for name in own if name != "kwargs"]
    legal += ["width", "height", "camera_id", "camera_name", "max_geom", "visual_options", "max_episode_steps"]
    for keyword in keywords:
        if keyword not in legal:
            raise Refused(f"{spec.id} takes no keyword {keyword!r}: choose one of {', '.join(legal)}")


class Infos:
    """gymnasium's `info` of every step and reset, made by gymnasium's own code.

    Its `step` looks at the simulation, has it simulated, and looks again: the simulation in between is the batch's,
    which must be persistent. This costs one Python call per environment and step.
    """

    def __init__(self, reference: Reference, batch: Batch) -> None:
        self.reference, self.batch = reference, batch
        # besides the state, what gymnasium looks at before a step
        self.fields: dict[str, Array] = {name: batch.bind(name) for name in ("xpos", "xipos")}
        self.remember()

    def remember(self) -> None:
        """Keep a copy of the present, which the next step's infos compare with."""
        self.before: dict[str, Array] = {"physics": self.batch.state.copy()}
        self.before |= {name: field.copy() for name, field in self.fields.items()}

    def restore(self, before: Mapping[str, Array] | None) -> None:
        """Continue from an earlier `before`; None if it was saved by environments without infos."""
        if before is None:
            self.batch.forward()
            self.remember()
        else:
            self.before = {name: np.array(before[name]) for name in ("physics", *self.fields)}

    def of_step(self, actions: Numbers) -> list[Info]:
        """Return the infos of the step that the batch has just made."""
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

    def of_reset(self, which: Iterable[int]) -> dict[int, Info]:
        """Return the infos of episodes that have just begun, by environment."""
        infos = {}
        for i in which:
            self.batch.get_data(i, self.reference.data)
            infos[int(i)] = dict(self.reference._get_reset_info())
        return infos

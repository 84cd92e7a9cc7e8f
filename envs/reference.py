"""gymnasium's own environment, of which ours is the vectorised form: how it is made, and what it says of a step."""

import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import mujoco
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator

from geonpg.errors import Refused

from .arrays import Array, Info, Numbers
from .physics import PHYSICS, Simulations

# keywords that every MuJoCo environment takes
OF_ANY = ("width", "height", "camera_id", "camera_name", "max_geom", "visual_options", "max_episode_steps")


class Reference(Protocol):
    """The fields of gymnasium's MuJoCo environments that we read.

    Constants of a task exist only where gymnasium's environment has them; each task reads those of its own.
    """

    model: mujoco.MjModel
    data: mujoco.MjData
    init_qpos: Array
    init_qvel: Array
    frame_skip: int
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
    """Refuse a keyword that an environment does not take, and list those that it takes."""
    own = inspect.signature(load_env_creator(str(spec.entry_point))).parameters.values()
    robot = spec.kwargs.get("robot")  # whose numbers are keywords too
    legal = [each.name for each in own if each.kind is not each.VAR_KEYWORD and each.name != "robot"]
    refuse_others(spec.id, keywords, [*legal, *OF_ANY, *(robot.numbers() if robot is not None else ())])


def refuse_others(name: str, keywords: Iterable[str], legal: Iterable[str]) -> None:
    """Refuse a keyword that is not among the legal ones."""
    for keyword in keywords:
        if keyword not in legal:
            choices = ", ".join(dict.fromkeys(legal))
            raise Refused(f"{name} takes no keyword {keyword!r}: choose one of {choices}")


class Infos:
    """gymnasium's `info` of every step and reset, made by gymnasium's own environment, which takes the step as well.

    It is put into the state of one of ours before the step; this costs its physics and its Python once more.
    """

    def __init__(self, reference: Reference, simulations: Simulations) -> None:
        self.reference, self.simulations = reference, simulations
        # besides the state, what gymnasium looks at before a step
        model = reference.model
        self.before: dict[str, Array] = {
            "xpos": np.zeros((simulations.n, model.nbody, 3)),
            "xipos": np.zeros((simulations.n, model.nbody, 3)),
        }

    def restore(self, before: Mapping[str, Array] | None) -> None:
        """Continue from an earlier `before`; None if it was saved by environments without infos."""
        if before is not None:
            self.before = {name: np.array(before[name]) for name in self.before}
            return
        for i in range(self.simulations.n):
            self.refresh(i)

    def refresh(self, index: int) -> None:
        """Look at an environment whose state was set."""
        self._load(index)
        mujoco.mj_forward(self.reference.model, self.reference.data)
        self._keep(index)

    def of_step(self, actions: Numbers) -> list[Info]:
        """Return the infos of the step that is about to be taken."""
        infos = []
        for i, action in enumerate(actions):
            self._load(i)
            for name, kept in self.before.items():
                getattr(self.reference.data, name)[:] = kept[i]
            infos.append(dict(self.reference.step(action)[4]))
            self._keep(i)
        return infos

    def of_reset(self, which: Iterable[int]) -> dict[int, Info]:
        """Return the infos of episodes that have just begun, by environment."""
        infos = {}
        for i in map(int, which):
            mujoco.mj_resetData(self.reference.model, self.reference.data)
            self.refresh(i)
            infos[i] = dict(self.reference._get_reset_info())
        return infos

    def _load(self, index: int) -> None:
        mujoco.mj_setState(self.reference.model, self.reference.data, self.simulations.physics[index], PHYSICS)

    def _keep(self, index: int) -> None:
        for name, kept in self.before.items():
            kept[index] = getattr(self.reference.data, name)

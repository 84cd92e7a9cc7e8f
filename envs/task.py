"""What a MuJoCo environment computes around the physics, for many environments at once.

Each task reads its constants off one gymnasium environment, the reference, so that keywords and defaults are
gymnasium's own; and it repeats gymnasium's arithmetic operation by operation, so that results are equal to the
last bit. Shapes: states and observations [n, ...], rewards and flags [n].
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

Array = NDArray[np.float64]
Actions = NDArray[Any]  # float32 or float64: costs are computed in the dtype that came
Flags = NDArray[np.bool_]
Fields = dict[str, Array]  # MjData's arrays, one row per simulation


class Task(ABC):
    """One environment's observation, reward, termination and reset."""

    def __init__(self, reference: Any) -> None:
        self.env = reference
        self.dt = np.array(reference.dt)  # as an array: a number would be converted in every step
        self.v5 = type(reference).__module__.endswith("_v5")
        # Does it look at contact forces, which take a call of their own after every step?
        self.contact_forces = False
        # Does it look at nothing but qpos and qvel? Then a reset needs no mj_forward.
        self.joints_only = False

    @abstractmethod
    def fields(self, batch: Batch) -> Fields:
        """The arrays that the task reads, live: they follow the simulations."""

    @abstractmethod
    def observe(self, now: Fields) -> Array:
        """Observations of the present state, in memory of their own."""

    @abstractmethod
    def mark(self, now: Fields) -> Array:
        """What the next step's reward will compare with, in memory of its own: [n]."""

    @abstractmethod
    def judge(self, mark: Array, now: Fields, actions: Actions) -> tuple[Array, Flags]:
        """Rewards and terminations of a step."""

    @abstractmethod
    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """A fresh qpos and qvel."""

    def uniform_start(self, rng: np.random.Generator, noise: float) -> tuple[Array, Array]:
        """Uniform noise on positions and velocities."""
        qpos = self.env.init_qpos + rng.uniform(low=-noise, high=noise, size=self.env.model.nq)
        return qpos, self.env.init_qvel + rng.uniform(low=-noise, high=noise, size=self.env.model.nv)

    def gaussian_start(self, rng: np.random.Generator, noise: float) -> tuple[Array, Array]:
        """Uniform noise on positions, normal noise on velocities."""
        qpos = self.env.init_qpos + rng.uniform(low=-noise, high=noise, size=self.env.model.nq)
        return qpos, self.env.init_qvel + noise * rng.standard_normal(self.env.model.nv)


def joints(batch: Batch) -> Fields:
    """qpos and qvel, and both as one, for they lie side by side in a simulation's state."""
    qpos, qvel = batch.bind("qpos"), batch.bind("qvel")
    start, size = (qpos.ctypes.data - batch.state.ctypes.data) // 8, qpos.shape[1] + qvel.shape[1]
    return {"qpos": qpos, "qvel": qvel, "joints": batch.state[:, start : start + size]}


def flat(batch: Batch, name: str) -> Array:
    """A field with several rows per simulation, as one: [n, entries]."""
    return batch.bind(name).reshape(batch.nsim, -1)


def contact_forces(batch: Batch) -> Array:
    """Room for every body's external forces, which the vector environment fills in: [n, bodies * 6]."""
    return np.zeros((batch.nsim, batch.model.nbody * 6))


def never(now: Fields) -> Flags:
    return np.zeros(len(now["qpos"]), dtype=np.bool_)


def squares(x: Actions) -> Actions:
    """Sum of squares of every row, in its own dtype; in C order, for another one would add in another order."""
    return np.add.reduce(np.square(x, order="C"), axis=1)

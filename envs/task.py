"""What a MuJoCo environment computes around the physics, for many environments at once.

Each task reads its constants off one gymnasium environment, the reference, so that keywords and defaults are
gymnasium's own; and it repeats gymnasium's arithmetic operation by operation, so that results are equal to the
last bit. Shapes: states and observations [n, ...], rewards and flags [n].
"""

from abc import ABC, abstractmethod

import numpy as np
from mujoco.batch import Batch

from .arrays import Array, Flags, Numbers
from .reference import Reference

Fields = dict[str, Array]  # MjData's arrays, one row per simulation


class Task(ABC):
    """Observations, rewards, terminations and first states of one of gymnasium's environments."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.dt = np.array(reference.dt)  # as an array: a number would be converted in every step
        self.v5 = type(reference).__module__.endswith("_v5")
        # Does it look at contact forces, which take a call of their own after every step?
        self.contact_forces = False
        # Does it look at nothing but qpos and qvel? Then a reset needs no mj_forward.
        self.joints_only = False

    @abstractmethod
    def bind(self, batch: Batch) -> Fields:
        """Return the arrays that the task reads, live: they follow the simulations."""

    @abstractmethod
    def observe(self, fields: Fields) -> Array:
        """Return observations of the present state, in memory of their own: [n, size]."""

    @abstractmethod
    def progress(self, fields: Fields) -> Array:
        """Return what the next step's reward compares with, in memory of its own: [n]."""

    @abstractmethod
    def outcome(self, before: Array, fields: Fields, actions: Numbers) -> tuple[Array, Flags]:
        """Return rewards and terminations of a step: [n] each. `before` is the progress before it."""

    @abstractmethod
    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw qpos and qvel of a new episode."""

    def uniform_start(self, rng: np.random.Generator, noise: float) -> tuple[Array, Array]:
        """Draw a first state with uniform noise on positions and velocities."""
        model = self.reference.model
        qpos = self.reference.init_qpos + rng.uniform(low=-noise, high=noise, size=model.nq)
        return qpos, self.reference.init_qvel + rng.uniform(low=-noise, high=noise, size=model.nv)

    def gaussian_start(self, rng: np.random.Generator, noise: float) -> tuple[Array, Array]:
        """Draw a first state with uniform noise on positions and normal noise on velocities."""
        model = self.reference.model
        qpos = self.reference.init_qpos + rng.uniform(low=-noise, high=noise, size=model.nq)
        return qpos, self.reference.init_qvel + noise * rng.standard_normal(model.nv)


def bind_joints(batch: Batch) -> Fields:
    """Return qpos and qvel, and both as one array: they lie side by side in a simulation's state."""
    qpos, qvel = batch.bind("qpos"), batch.bind("qvel")
    start, size = (qpos.ctypes.data - batch.state.ctypes.data) // 8, qpos.shape[1] + qvel.shape[1]
    return {"qpos": qpos, "qvel": qvel, "joints": batch.state[:, start : start + size]}


def bind_flat(batch: Batch, name: str) -> Array:
    """Return a field that has several rows per simulation as one row each: [n, entries]."""
    return batch.bind(name).reshape(batch.nsim, -1)


def contact_forces_of(batch: Batch) -> Array:
    """Return room for the external forces on every body, which the vector environment fills in: [n, bodies * 6]."""
    return np.zeros((batch.nsim, batch.model.nbody * 6))


def no_progress(fields: Fields) -> Array:
    """Return the progress of tasks whose rewards look at the present only: zeros."""
    return np.zeros(len(fields["qpos"]))


def no_termination(fields: Fields) -> Flags:
    """Return the terminations of tasks that only a time limit ends: all False."""
    return np.zeros(len(fields["qpos"]), dtype=np.bool_)


def all_finite(fields: Fields) -> Flags:
    """Return where all positions and velocities are finite."""
    return np.logical_and.reduce(np.isfinite(fields["joints"]), axis=1)


def sum_of_squares(rows: Numbers) -> Numbers:
    """Return the sum of squares of every row, in its own dtype; in C order, for another one would add differently."""
    return np.add.reduce(np.square(rows, order="C"), axis=1)

"""Reacher, InvertedPendulum, InvertedDoublePendulum."""

import numpy as np
from mujoco.batch import Batch

from .arrays import Array, Flags, Numbers
from .task import Fields, Task, all_finite, bind_joints, no_progress, no_termination, sum_of_squares


class Reacher(Task):
    """Reach a target with the tip of an arm. v4 pays for the distance before a step, v5 for the one after it."""

    def bind(self, batch: Batch) -> Fields:
        """Return joints and the positions of fingertip and target."""
        positions, body = batch.bind("xpos"), self.reference.data.body
        return {
            **bind_joints(batch),
            "fingertip": positions[:, body("fingertip").id],
            "target": positions[:, body("target").id],
        }

    def observe(self, fields: Fields) -> Array:
        """Return the arm's angles as cosines and sines, the target, velocities, and the way to the target."""
        theta, towards = fields["qpos"][:, :2], fields["fingertip"] - fields["target"]
        shown = towards[:, :2] if self.v5 else towards
        parts = np.cos(theta), np.sin(theta), fields["qpos"][:, 2:], fields["qvel"][:, :2], shown
        return np.concatenate(parts, axis=1)

    def progress(self, fields: Fields) -> Array:
        """Return minus the distance between fingertip and target."""
        towards = fields["fingertip"] - fields["target"]
        return -np.sqrt(np.vecdot(towards, towards))

    def outcome(self, before: Array, fields: Fields, actions: Numbers) -> tuple[Array, Flags]:
        """Return minus distance minus squared actions; only a time limit ends an episode."""
        control, constants = -sum_of_squares(actions), self.reference
        if not self.v5:
            return before + control, no_termination(fields)
        distance = self.progress(fields) * constants._reward_dist_weight
        return distance + control * constants._reward_control_weight, no_termination(fields)

    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw the arm near its rest and a target within reach."""
        env = self.reference
        qpos = rng.uniform(low=-0.1, high=0.1, size=env.model.nq) + env.init_qpos
        while True:
            goal = rng.uniform(low=-0.2, high=0.2, size=2)
            if np.linalg.norm(goal) < 0.2:
                break
        qpos[-2:] = goal
        qvel = env.init_qvel + rng.uniform(low=-0.005, high=0.005, size=env.model.nv)
        qvel[-2:] = 0
        return qpos, qvel


class InvertedPendulum(Task):
    """Keep a pole upright on a cart."""

    def bind(self, batch: Batch) -> Fields:
        """Return joints."""
        return bind_joints(batch)

    def observe(self, fields: Fields) -> Array:
        """Return positions and velocities."""
        return np.concatenate((fields["qpos"], fields["qvel"]), axis=1)

    def progress(self, fields: Fields) -> Array:
        """Return zeros: rewards look at the present only."""
        return no_progress(fields)

    def outcome(self, before: Array, fields: Fields, actions: Numbers) -> tuple[Array, Flags]:
        """Return 1 for every step, in v5 only while the pole stands; the episode ends when it falls."""
        fallen = ~all_finite(fields) | (np.abs(fields["qpos"][:, 1]) > 0.2)
        return (~fallen).astype(np.float64) if self.v5 else np.ones(len(fallen)), fallen

    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a state near rest."""
        return self.uniform_start(rng, self.reference._reset_noise_scale if self.v5 else 0.01)


def square_by_pow(x: Array) -> Array:
    """Square number by number, as gymnasium does: by the C library's pow.

    It does not always round like x * x, nor like numpy's pow of an array, which some processors have another one for.
    """
    return np.array([number**2 for number in x])


class InvertedDoublePendulum(Task):
    """Keep two poles, one on top of the other, upright on a cart."""

    def bind(self, batch: Batch) -> Fields:
        """Return joints, the position of the upper pole's tip, and constraint forces."""
        tip, forces = batch.bind("site_xpos")[:, 0], batch.bind("qfrc_constraint")
        return {**bind_joints(batch), "tip": tip, "qfrc_constraint": forces}

    def observe(self, fields: Fields) -> Array:
        """Return the cart's position, sines and cosines of the angles, velocities and constraint forces."""
        forces = np.clip(fields["qfrc_constraint"], -10, 10)
        return np.concatenate(
            (
                fields["qpos"][:, :1],
                np.sin(fields["qpos"][:, 1:]),
                np.cos(fields["qpos"][:, 1:]),
                np.clip(fields["qvel"], -10, 10),
                forces[:, :1] if self.v5 else forces,
            ),
            axis=1,
        )

    def progress(self, fields: Fields) -> Array:
        """Return zeros: rewards look at the present only."""
        return no_progress(fields)

    def outcome(self, before: Array, fields: Fields, actions: Numbers) -> tuple[Array, Flags]:
        """Return the reward for standing minus costs of distance and spin; the episode ends when the tip is low."""
        x, y = fields["tip"][:, 0], fields["tip"][:, 2]
        fallen = y <= 1
        distance = 0.01 * square_by_pow(x) + square_by_pow(y - 2)
        spin = 0.001 * square_by_pow(fields["qvel"][:, 1]) + 0.005 * square_by_pow(fields["qvel"][:, 2])
        alive = self.reference._healthy_reward * ~fallen if self.v5 else 10
        return alive - distance - spin, fallen

    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a state near rest."""
        return self.gaussian_start(rng, self.reference._reset_noise_scale if self.v5 else 0.1)

"""Reacher, InvertedPendulum, InvertedDoublePendulum."""

import numpy as np
from mujoco.batch import Batch

from .task import Actions, Array, Fields, Flags, Task, joints, never, squares


class Reacher(Task):
    """Version 4 pays for the distance before the step, version 5 for the one after it."""

    def fields(self, batch: Batch) -> Fields:
        positions, body = batch.bind("xpos"), self.env.data.body
        return {
            **joints(batch),
            "fingertip": positions[:, body("fingertip").id],
            "target": positions[:, body("target").id],
        }

    def observe(self, now: Fields) -> Array:
        theta, towards = now["qpos"][:, :2], now["fingertip"] - now["target"]
        shown = towards[:, :2] if self.v5 else towards
        return np.concatenate((np.cos(theta), np.sin(theta), now["qpos"][:, 2:], now["qvel"][:, :2], shown), axis=1)

    def mark(self, now: Fields) -> Array:
        towards = now["fingertip"] - now["target"]
        return -np.sqrt(np.vecdot(towards, towards))

    def judge(self, mark: Array, now: Fields, actions: Actions) -> tuple[Array, Flags]:
        control = -squares(actions)
        if not self.v5:
            return mark + control, never(now)
        return self.mark(now) * self.env._reward_dist_weight + control * self.env._reward_control_weight, never(now)

    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        env = self.env
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
    def fields(self, batch: Batch) -> Fields:
        return joints(batch)

    def observe(self, now: Fields) -> Array:
        return np.concatenate((now["qpos"], now["qvel"]), axis=1)

    def mark(self, now: Fields) -> Array:
        return np.zeros(len(now["qpos"]))  # the reward looks at the present only

    def judge(self, mark: Array, now: Fields, actions: Actions) -> tuple[Array, Flags]:
        finite = np.isfinite(now["qpos"]).all(1) & np.isfinite(now["qvel"]).all(1)
        fallen = ~finite | (np.abs(now["qpos"][:, 1]) > 0.2)
        return (~fallen).astype(np.float64) if self.v5 else np.ones(len(fallen)), fallen

    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.uniform_start(rng, self.env._reset_noise_scale if self.v5 else 0.01)


def square_by_pow(x: Array) -> Array:
    """Square number by number, as gymnasium does: by the C library's pow.

    It does not always round like x * x, nor like numpy's pow of an array, which some processors have another one for.
    """
    return np.array([number**2 for number in x])


class InvertedDoublePendulum(Task):
    def fields(self, batch: Batch) -> Fields:
        tip, forces = batch.bind("site_xpos")[:, 0], batch.bind("qfrc_constraint")
        return {**joints(batch), "tip": tip, "qfrc_constraint": forces}

    def observe(self, now: Fields) -> Array:
        forces = np.clip(now["qfrc_constraint"], -10, 10)
        return np.concatenate(
            (
                now["qpos"][:, :1],
                np.sin(now["qpos"][:, 1:]),
                np.cos(now["qpos"][:, 1:]),
                np.clip(now["qvel"], -10, 10),
                forces[:, :1] if self.v5 else forces,
            ),
            axis=1,
        )

    def mark(self, now: Fields) -> Array:
        return np.zeros(len(now["qpos"]))  # the reward looks at the present only

    def judge(self, mark: Array, now: Fields, actions: Actions) -> tuple[Array, Flags]:
        x, y = now["tip"][:, 0], now["tip"][:, 2]
        fallen = y <= 1
        distance = 0.01 * square_by_pow(x) + square_by_pow(y - 2)
        spin = 0.001 * square_by_pow(now["qvel"][:, 1]) + 0.005 * square_by_pow(now["qvel"][:, 2])
        alive = self.env._healthy_reward * ~fallen if self.v5 else 10
        return alive - distance - spin, fallen

    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.gaussian_start(rng, self.env._reset_noise_scale if self.v5 else 0.1)

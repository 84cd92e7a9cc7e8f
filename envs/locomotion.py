"""HalfCheetah, Swimmer, Hopper, Walker2d, Ant, Humanoid, HumanoidStandup."""

from typing import Any

import numpy as np
from mujoco.batch import Batch

from .task import Actions, Array, Fields, Flags, Task, contact_forces, flat, joints, never, squares


class Locomotion(Task):
    """Forward velocity, control cost, and observations that may leave the first positions out."""

    skipped = 1  # positions that `exclude_current_positions_from_observation` leaves out

    def __init__(self, reference: Any) -> None:
        super().__init__(reference)
        excluded = getattr(reference, "_exclude_current_positions_from_observation", True)
        self.first = self.skipped if excluded else 0

    def positions(self, now: Fields) -> Array:
        return now["qpos"][:, self.first :]

    def velocity(self, mark: Array, x: Array) -> Array:
        return (x - mark) / self.dt

    def forward_reward(self, velocity: Array) -> Array:
        weight = self.env._forward_reward_weight
        return velocity if weight == 1 else weight * velocity

    def control_cost(self, controls: Actions) -> Actions:
        return self.env._ctrl_cost_weight * squares(controls)

    def healthy_reward(self, healthy: Flags) -> Array | float:
        """Version 4 pays a task that ends when unhealthy for its last step too."""
        reward = float(self.env._healthy_reward)
        always = self.env._terminate_when_unhealthy and not self.v5
        return reward if always else np.multiply(healthy, reward, dtype=np.float64)

    def ended(self, healthy: Flags) -> Flags:
        return ~healthy if self.env._terminate_when_unhealthy else np.zeros_like(healthy)


class Runner(Locomotion):
    """Forward velocity minus control cost, and no end but the time limit."""

    def __init__(self, reference: Any) -> None:
        super().__init__(reference)
        self.joints_only = True

    def fields(self, batch: Batch) -> Fields:
        return joints(batch)

    def observe(self, now: Fields) -> Array:
        return now["joints"][:, self.first :].copy()

    def mark(self, now: Fields) -> Array:
        return now["qpos"][:, 0].copy()

    def judge(self, mark: Array, now: Fields, actions: Actions) -> tuple[Array, Flags]:
        forward = self.forward_reward(self.velocity(mark, now["qpos"][:, 0]))
        return forward - self.control_cost(actions), never(now)


class HalfCheetah(Runner):
    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.gaussian_start(rng, self.env._reset_noise_scale)


class Swimmer(Runner):
    skipped = 2

    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.uniform_start(rng, self.env._reset_noise_scale)


SPEED_LIMIT = np.array(10.0)


class Upright(Locomotion):
    """Hopper and Walker2d: the torso must stay in a range of heights and angles."""

    def __init__(self, reference: Any) -> None:
        super().__init__(reference)
        self.joints_only = True
        bounds = (*reference._healthy_z_range, *reference._healthy_angle_range)
        self.low_z, self.high_z, self.low_angle, self.high_angle = (np.array(bound) for bound in bounds)
        self.others = getattr(reference, "_healthy_state_range", None)  # Hopper bounds its other coordinates too

    def fields(self, batch: Batch) -> Fields:
        return joints(batch)

    def observe(self, now: Fields) -> Array:
        observations = now["joints"][:, self.first :].copy()
        velocities = observations[:, -now["qvel"].shape[1] :]
        np.maximum(velocities, -SPEED_LIMIT, out=velocities)
        np.minimum(velocities, SPEED_LIMIT, out=velocities)
        return observations

    def mark(self, now: Fields) -> Array:
        return now["qpos"][:, 0].copy()

    def healthy(self, now: Fields) -> Flags:
        z, angle = now["qpos"][:, 1], now["qpos"][:, 2]
        healthy = (self.low_z < z) & (z < self.high_z) & (self.low_angle < angle) & (angle < self.high_angle)
        return healthy if self.others is None else healthy & self.others_healthy(now, *self.others)

    def others_healthy(self, now: Fields, low: float, high: float) -> Flags:
        state = now["joints"][:, 2:]
        return np.logical_and.reduce((low < state) & (state < high), axis=1)

    def judge(self, mark: Array, now: Fields, actions: Actions) -> tuple[Array, Flags]:
        healthy = self.healthy(now)
        forward = self.forward_reward(self.velocity(mark, now["qpos"][:, 0]))
        return forward + self.healthy_reward(healthy) - self.control_cost(actions), self.ended(healthy)

    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.uniform_start(rng, self.env._reset_noise_scale)


class Ant(Locomotion):
    skipped = 2

    def __init__(self, reference: Any) -> None:
        super().__init__(reference)
        self.torso = reference.data.body(getattr(reference, "_main_body", "torso")).id
        self.contact_forces = self.v5 or reference._use_contact_forces
        # the world body's forces are left out of version 5's observation
        shown = reference._include_cfrc_ext_in_observation if self.v5 else reference._use_contact_forces
        self.forces_from = (6 if self.v5 else 0) if shown else None

    def fields(self, batch: Batch) -> Fields:
        contacts = {"cfrc_ext": contact_forces(batch)} if self.contact_forces else {}
        return {**joints(batch), "torso": batch.bind("xpos")[:, self.torso], **contacts}

    def clipped_forces(self, now: Fields) -> Array:
        return np.clip(now["cfrc_ext"], *self.env._contact_force_range)

    def observe(self, now: Fields) -> Array:
        parts = [self.positions(now), now["qvel"]]
        if self.forces_from is not None:
            parts.append(self.clipped_forces(now)[:, self.forces_from :])
        return np.concatenate(parts, axis=1)

    def mark(self, now: Fields) -> Array:
        return now["torso"][:, 0].copy()

    def healthy(self, now: Fields) -> Flags:
        finite = np.isfinite(now["qpos"]).all(1) & np.isfinite(now["qvel"]).all(1)
        low, high = self.env._healthy_z_range
        return finite & (low <= now["qpos"][:, 2]) & (now["qpos"][:, 2] <= high)

    def judge(self, mark: Array, now: Fields, actions: Actions) -> tuple[Array, Flags]:
        healthy, forward = self.healthy(now), self.velocity(mark, now["torso"][:, 0])
        if self.v5:
            forward = self.forward_reward(forward)
        costs = self.control_cost(actions)
        if self.contact_forces:
            costs = costs + self.env._contact_cost_weight * squares(self.clipped_forces(now))
        return forward + self.healthy_reward(healthy) - costs, self.ended(healthy)

    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.gaussian_start(rng, self.env._reset_noise_scale)


class Humanlike(Locomotion):
    """The long observation of Humanoid and HumanoidStandup: inertias, velocities and forces of every body."""

    skipped = 2

    def __init__(self, reference: Any) -> None:
        super().__init__(reference)
        self.contact_forces = True
        # version 5 leaves out the world body and the free joint, which are always zero
        width = {"cinert": 10, "cvel": 6, "qfrc_actuator": 6, "cfrc_ext": 6}
        shown = [n for n in width if not self.v5 or getattr(reference, f"_include_{n}_in_observation") is True]
        self.shown = {name: width[name] if self.v5 else 0 for name in shown}

    def fields(self, batch: Batch) -> Fields:
        names = ("cinert", "cvel", "qfrc_actuator", "xipos")
        return {**joints(batch), **{name: flat(batch, name) for name in names}, "cfrc_ext": contact_forces(batch)}

    def observe(self, now: Fields) -> Array:
        long = [now[name][:, start:] for name, start in self.shown.items()]
        return np.concatenate((self.positions(now), now["qvel"], *long), axis=1)


class Humanoid(Humanlike):
    def mark(self, now: Fields) -> Array:
        """The x coordinate of the centre of mass."""
        mass = self.env.model.body_mass
        moments = np.einsum("b,nbj->nj", mass, now["xipos"].reshape(-1, len(mass), 3))
        return (moments / mass.sum())[:, 0].copy()

    def judge(self, mark: Array, now: Fields, actions: Actions) -> tuple[Array, Flags]:
        low, high = self.env._healthy_z_range
        healthy = (low < now["qpos"][:, 2]) & (now["qpos"][:, 2] < high)
        forward = self.forward_reward(self.velocity(mark, self.mark(now)))
        costs = self.control_cost(actions.astype(np.float64))
        if self.v5:
            contact = self.env._contact_cost_weight * squares(now["cfrc_ext"])
            costs = costs + np.clip(contact, *self.env._contact_cost_range)
        return forward + self.healthy_reward(healthy) - costs, self.ended(healthy)

    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.uniform_start(rng, self.env._reset_noise_scale)


class HumanoidStandup(Humanlike):
    def mark(self, now: Fields) -> Array:
        return np.zeros(len(now["qpos"]))  # the reward looks at the present only

    def judge(self, mark: Array, now: Fields, actions: Actions) -> tuple[Array, Flags]:
        env, ctrl = self.env, squares(actions.astype(np.float64))
        height, impact = now["qpos"][:, 2] / env.model.opt.timestep, squares(now["cfrc_ext"])
        if self.v5:
            impact = np.clip(env._impact_cost_weight * impact, *env._impact_cost_range)
            return height - env._ctrl_cost_weight * ctrl - impact + 1, never(now)
        return height - 0.1 * ctrl - np.minimum(0.5e-6 * impact, 10) + 1, never(now)

    def initial(self, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.uniform_start(rng, self.env._reset_noise_scale if self.v5 else 0.01)

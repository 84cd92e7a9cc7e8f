"""HalfCheetah, Swimmer, Hopper, Walker2d, Ant, Humanoid, HumanoidStandup."""

import numpy as np
from mujoco.batch import Batch

from .arrays import Array, Flags, Numbers
from .reference import Reference
from .task import (
    Fields,
    Task,
    all_finite,
    bind_flat,
    bind_joints,
    contact_forces_of,
    no_progress,
    no_termination,
    sum_of_squares,
)


class Locomotion(Task):
    """Forward velocity, control cost, and observations that may leave the first positions out."""

    skipped = 1  # positions that `exclude_current_positions_from_observation` leaves out

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference)
        excluded = getattr(reference, "_exclude_current_positions_from_observation", True)
        self.first = self.skipped if excluded else 0

    def positions(self, fields: Fields) -> Array:
        """Return the positions that observations show."""
        return fields["qpos"][:, self.first :]

    def forward_velocity(self, before: Array, x: Array) -> Array:
        """Return the mean velocity of a step, from the x coordinates before and after it."""
        return (x - before) / self.dt

    def forward_reward(self, velocity: Array) -> Array:
        """Weigh forward velocities."""
        weight = self.reference._forward_reward_weight
        return velocity if weight == 1 else weight * velocity

    def control_cost(self, controls: Numbers) -> Numbers:
        """Return the weighted sum of squared controls."""
        return self.reference._ctrl_cost_weight * sum_of_squares(controls)

    def healthy_reward(self, healthy: Flags) -> Array | float:
        """Return the reward for being healthy; v4 pays it for a last, unhealthy step too."""
        reward = float(self.reference._healthy_reward)
        always = self.reference._terminate_when_unhealthy and not self.v5
        return reward if always else np.multiply(healthy, reward, dtype=np.float64)

    def terminated(self, healthy: Flags) -> Flags:
        """Return which episodes end by being unhealthy."""
        return ~healthy if self.reference._terminate_when_unhealthy else np.zeros_like(healthy)


class Planar(Locomotion):
    """Tasks in a plane, which look at joints only and walk along their first coordinate."""

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference)
        self.joints_only = True

    def bind(self, batch: Batch) -> Fields:
        """Return joints."""
        return bind_joints(batch)

    def progress(self, fields: Fields) -> Array:
        """Return the x coordinate."""
        return fields["qpos"][:, 0].copy()


class Runner(Planar):
    """Forward velocity minus control cost, and no end but the time limit."""

    def observe(self, fields: Fields) -> Array:
        """Return positions and velocities."""
        return fields["joints"][:, self.first :].copy()

    def outcome(self, before: Array, fields: Fields, actions: Numbers) -> tuple[Array, Flags]:
        """Return forward reward minus control cost; only a time limit ends an episode."""
        forward = self.forward_reward(self.forward_velocity(before, fields["qpos"][:, 0]))
        return forward - self.control_cost(actions), no_termination(fields)


class HalfCheetah(Runner):
    """Run forwards on two legs, in a plane."""

    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a state near rest."""
        return self.gaussian_start(rng, self.reference._reset_noise_scale)


class Swimmer(Runner):
    """Swim forwards by bending three links, in a plane."""

    skipped = 2

    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a state near rest."""
        return self.uniform_start(rng, self.reference._reset_noise_scale)


SPEED_LIMIT = np.array(10.0)


class Upright(Planar):
    """Hopper and Walker2d: the torso must stay in a range of heights and angles."""

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference)
        bounds = (*reference._healthy_z_range, *reference._healthy_angle_range)
        self.low_z, self.high_z, self.low_angle, self.high_angle = (np.array(bound) for bound in bounds)
        self.others = getattr(reference, "_healthy_state_range", None)  # Hopper bounds its other coordinates too

    def observe(self, fields: Fields) -> Array:
        """Return positions and velocities, these cut at SPEED_LIMIT."""
        observations = fields["joints"][:, self.first :].copy()
        velocities = observations[:, -fields["qvel"].shape[1] :]
        np.maximum(velocities, -SPEED_LIMIT, out=velocities)
        np.minimum(velocities, SPEED_LIMIT, out=velocities)
        return observations

    def healthy(self, fields: Fields) -> Flags:
        """Return where the torso is high and upright enough, and Hopper's other coordinates are in range."""
        z, angle = fields["qpos"][:, 1], fields["qpos"][:, 2]
        healthy = (self.low_z < z) & (z < self.high_z) & (self.low_angle < angle) & (angle < self.high_angle)
        return healthy if self.others is None else healthy & self.others_healthy(fields, *self.others)

    def others_healthy(self, fields: Fields, low: float, high: float) -> Flags:
        """Return where all coordinates but the first two lie between the bounds."""
        state = fields["joints"][:, 2:]
        return np.logical_and.reduce((low < state) & (state < high), axis=1)

    def outcome(self, before: Array, fields: Fields, actions: Numbers) -> tuple[Array, Flags]:
        """Return forward and healthy reward minus control cost; an unhealthy state may end the episode."""
        healthy = self.healthy(fields)
        forward = self.forward_reward(self.forward_velocity(before, fields["qpos"][:, 0]))
        return forward + self.healthy_reward(healthy) - self.control_cost(actions), self.terminated(healthy)

    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a state near rest."""
        return self.uniform_start(rng, self.reference._reset_noise_scale)


class Ant(Locomotion):
    """Walk forwards on four legs."""

    skipped = 2

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference)
        self.torso = reference.data.body(getattr(reference, "_main_body", "torso")).id
        self.contact_forces = self.v5 or reference._use_contact_forces
        # the world body's forces are left out of v5's observation
        shown = reference._include_cfrc_ext_in_observation if self.v5 else reference._use_contact_forces
        self.forces_from = (6 if self.v5 else 0) if shown else None

    def bind(self, batch: Batch) -> Fields:
        """Return joints, the torso's position and, where they are used, contact forces."""
        contacts = {"cfrc_ext": contact_forces_of(batch)} if self.contact_forces else {}
        return {**bind_joints(batch), "torso": batch.bind("xpos")[:, self.torso], **contacts}

    def clipped_forces(self, fields: Fields) -> Array:
        """Return contact forces within gymnasium's range."""
        return np.clip(fields["cfrc_ext"], *self.reference._contact_force_range)

    def observe(self, fields: Fields) -> Array:
        """Return positions, velocities and, where they are shown, contact forces."""
        parts = [self.positions(fields), fields["qvel"]]
        if self.forces_from is not None:
            parts.append(self.clipped_forces(fields)[:, self.forces_from :])
        return np.concatenate(parts, axis=1)

    def progress(self, fields: Fields) -> Array:
        """Return the torso's x coordinate."""
        return fields["torso"][:, 0].copy()

    def healthy(self, fields: Fields) -> Flags:
        """Return where the state is finite and the torso neither too low nor too high."""
        low, high = self.reference._healthy_z_range
        return all_finite(fields) & (low <= fields["qpos"][:, 2]) & (fields["qpos"][:, 2] <= high)

    def outcome(self, before: Array, fields: Fields, actions: Numbers) -> tuple[Array, Flags]:
        """Return forward and healthy reward minus costs of control and contacts; unhealthy states may end it."""
        healthy, forward = self.healthy(fields), self.forward_velocity(before, fields["torso"][:, 0])
        if self.v5:
            forward = self.forward_reward(forward)
        costs = self.control_cost(actions)
        if self.contact_forces:
            costs = costs + self.reference._contact_cost_weight * sum_of_squares(self.clipped_forces(fields))
        return forward + self.healthy_reward(healthy) - costs, self.terminated(healthy)

    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a state near rest."""
        return self.gaussian_start(rng, self.reference._reset_noise_scale)


class Humanlike(Locomotion):
    """The long observation of Humanoid and HumanoidStandup: inertias, velocities and forces of every body."""

    skipped = 2

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference)
        self.contact_forces = True
        # v5 leaves out the world body and the free joint, which are always zero
        width = {"cinert": 10, "cvel": 6, "qfrc_actuator": 6, "cfrc_ext": 6}
        shown = [n for n in width if not self.v5 or getattr(reference, f"_include_{n}_in_observation") is True]
        self.shown = {name: width[name] if self.v5 else 0 for name in shown}

    def bind(self, batch: Batch) -> Fields:
        """Return joints; inertias, velocities, positions and contact forces of every body; and actuator forces."""
        names = ("cinert", "cvel", "qfrc_actuator", "xipos")
        bodies = {name: bind_flat(batch, name) for name in names}
        return {**bind_joints(batch), **bodies, "cfrc_ext": contact_forces_of(batch)}

    def observe(self, fields: Fields) -> Array:
        """Return positions, velocities, and what is shown of every body."""
        bodies = [fields[name][:, start:] for name, start in self.shown.items()]
        return np.concatenate((self.positions(fields), fields["qvel"], *bodies), axis=1)


class Humanoid(Humanlike):
    """Walk forwards on two legs."""

    def progress(self, fields: Fields) -> Array:
        """Return the x coordinate of the centre of mass."""
        mass = self.reference.model.body_mass
        moments = np.einsum("b,nbj->nj", mass, fields["xipos"].reshape(-1, len(mass), 3))
        return (moments / mass.sum())[:, 0].copy()

    def outcome(self, before: Array, fields: Fields, actions: Numbers) -> tuple[Array, Flags]:
        """Return forward and healthy reward minus costs of control and contacts; unhealthy states may end it."""
        low, high = self.reference._healthy_z_range
        healthy = (low < fields["qpos"][:, 2]) & (fields["qpos"][:, 2] < high)
        forward = self.forward_reward(self.forward_velocity(before, self.progress(fields)))
        costs = self.control_cost(actions.astype(np.float64))
        if self.v5:
            contact = self.reference._contact_cost_weight * sum_of_squares(fields["cfrc_ext"])
            costs = costs + np.clip(contact, *self.reference._contact_cost_range)
        return forward + self.healthy_reward(healthy) - costs, self.terminated(healthy)

    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a state near rest."""
        return self.uniform_start(rng, self.reference._reset_noise_scale)


class HumanoidStandup(Humanlike):
    """Stand up from lying on the ground."""

    def progress(self, fields: Fields) -> Array:
        """Return zeros: rewards look at the present only."""
        return no_progress(fields)

    def outcome(self, before: Array, fields: Fields, actions: Numbers) -> tuple[Array, Flags]:
        """Return height minus costs of control and impacts, plus 1; only a time limit ends an episode."""
        constants, control = self.reference, sum_of_squares(actions.astype(np.float64))
        height = fields["qpos"][:, 2] / constants.model.opt.timestep
        impact = sum_of_squares(fields["cfrc_ext"])
        if self.v5:
            impact = np.clip(constants._impact_cost_weight * impact, *constants._impact_cost_range)
            return height - constants._ctrl_cost_weight * control - impact + 1, no_termination(fields)
        return height - 0.1 * control - np.minimum(0.5e-6 * impact, 10) + 1, no_termination(fields)

    def first_state(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw a state near lying still."""
        return self.uniform_start(rng, self.reference._reset_noise_scale if self.v5 else 0.01)

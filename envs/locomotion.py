"""HalfCheetah, Swimmer, Hopper, Walker2d, Ant, Humanoid, HumanoidStandup."""

import numpy as np

from .forward import Locomotion, first_coordinate, healthy_reward, put, put_clipped
from .physics import (
    Constants,
    Simulation,
    all_finite,
    clipped,
    control_cost,
    ending,
    helper,
    observation,
    progress,
    reward,
    sum_of_squares,
)
from .reference import Reference
from .task import gaussian_start

SPEED_LIMIT = 10.0


@observation
def observe_joints(sim: Simulation, k: Constants) -> None:
    """Show positions and velocities."""
    at = put(sim.observation, 0, sim.qpos[int(k.first) :])
    put(sim.observation, at, sim.qvel)


@reward
def run_reward(sim: Simulation, k: Constants, before: float) -> float:
    """Return forward reward minus control cost."""
    return k.forward_weight * ((sim.qpos[0] - before) / k.dt) - control_cost(sim, k.control_weight)


class HalfCheetah(Locomotion):
    """Run forwards on two legs, in a plane."""

    joints_only = True
    observe, progress, reward, reset = observe_joints, first_coordinate, run_reward, gaussian_start


class Swimmer(Locomotion):
    """Swim forwards by bending three links, in a plane."""

    joints_only = True
    skipped = 2
    observe, progress, reward = observe_joints, first_coordinate, run_reward


@helper
def is_upright(sim: Simulation, k: Constants) -> bool:
    """Return whether the torso is high and upright enough, and Hopper's other coordinates are in range."""
    z, angle = sim.qpos[1], sim.qpos[2]
    if not (k.low_z < z < k.high_z and k.low_angle < angle < k.high_angle):
        return False
    if k.bounds_others != 0:
        for x in sim.qpos[2:]:
            if not k.low_state < x < k.high_state:
                return False
        for x in sim.qvel:
            if not k.low_state < x < k.high_state:
                return False
    return True


@observation
def observe_upright(sim: Simulation, k: Constants) -> None:
    """Show positions and velocities, these cut at SPEED_LIMIT."""
    at = put(sim.observation, 0, sim.qpos[int(k.first) :])
    put_clipped(sim.observation, at, sim.qvel, -SPEED_LIMIT, SPEED_LIMIT)


@reward
def upright_reward(sim: Simulation, k: Constants, before: float) -> float:
    """Return forward and healthy reward minus control cost."""
    forward = k.forward_weight * ((sim.qpos[0] - before) / k.dt)
    return forward + healthy_reward(k, is_upright(sim, k)) - control_cost(sim, k.control_weight)


@ending
def fallen(sim: Simulation, k: Constants) -> bool:
    """Return whether the state is unhealthy, if that ends an episode."""
    return k.terminates != 0 and not is_upright(sim, k)


class Upright(Locomotion):
    """Hopper and Walker2d: the torso must stay in a range of heights and angles."""

    joints_only = True
    observe, progress, reward, ended = observe_upright, first_coordinate, upright_reward, fallen

    def constants(self) -> dict[str, float]:
        """Return the ranges of healthy states too; only Hopper bounds its other coordinates."""
        z, angle = self.reference._healthy_z_range, self.reference._healthy_angle_range
        others = getattr(self.reference, "_healthy_state_range", None)
        low, high = others or (0.0, 0.0)
        bounds = {"low_z": z[0], "high_z": z[1], "low_angle": angle[0], "high_angle": angle[1]}
        bounds |= {"bounds_others": others is not None, "low_state": low, "high_state": high}
        return {**super().constants(), **{name: float(bound) for name, bound in bounds.items()}}


@helper
def ant_is_healthy(sim: Simulation, k: Constants) -> bool:
    """Return whether the state is finite and the torso neither too low nor too high."""
    return all_finite(sim) and k.low_z <= sim.qpos[2] <= k.high_z


@observation
def observe_ant(sim: Simulation, k: Constants) -> None:
    """Show positions, velocities and, where they are shown, contact forces."""
    at = put(sim.observation, 0, sim.qpos[int(k.first) :])
    at = put(sim.observation, at, sim.qvel)
    if k.shows_forces != 0:  # the world body's are left out of v5's observation
        forces = sim.cfrc_ext[int(k.v5) :].ravel()
        put_clipped(sim.observation, at, forces, k.low_force, k.high_force)


@progress
def torso_x(sim: Simulation, k: Constants) -> float:
    """Return the torso's x coordinate."""
    return sim.xpos[int(k.torso), 0]


@reward
def ant_reward(sim: Simulation, k: Constants, before: float) -> float:
    """Return forward and healthy reward minus costs of control and contacts."""
    forward = k.forward_weight * ((sim.xpos[int(k.torso), 0] - before) / k.dt)
    costs = control_cost(sim, k.control_weight)
    if k.uses_forces != 0:
        forces = np.empty(sim.cfrc_ext.size)
        put_clipped(forces, 0, sim.cfrc_ext.ravel(), k.low_force, k.high_force)
        costs += k.contact_weight * sum_of_squares(forces)
    return forward + healthy_reward(k, ant_is_healthy(sim, k)) - costs


@ending
def ant_ended(sim: Simulation, k: Constants) -> bool:
    """Return whether the state is unhealthy, if that ends an episode."""
    return k.terminates != 0 and not ant_is_healthy(sim, k)


class Ant(Locomotion):
    """Walk forwards on four legs."""

    skipped = 2
    observe, progress, reward, ended, reset = observe_ant, torso_x, ant_reward, ant_ended, gaussian_start

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference)
        self.contact_forces = bool(self.v5 or reference._use_contact_forces)

    def constants(self) -> dict[str, float]:
        """Return what is said of contact forces too."""
        reference = self.reference
        shown = reference._include_cfrc_ext_in_observation if self.v5 else reference._use_contact_forces
        own = {
            "torso": reference.data.body(getattr(reference, "_main_body", "torso")).id,
            "uses_forces": self.contact_forces,
            "shows_forces": bool(shown),
            "low_force": reference._contact_force_range[0],
            "high_force": reference._contact_force_range[1],
            "contact_weight": reference._contact_cost_weight,
            "low_z": reference._healthy_z_range[0],
            "high_z": reference._healthy_z_range[1],
        }
        weight = {} if self.v5 else {"forward_weight": 1.0}
        return {**super().constants(), **{name: float(value) for name, value in own.items()}, **weight}


@observation
def observe_body(sim: Simulation, k: Constants) -> None:
    """Show positions, velocities, and what is shown of every body; v5 leaves out the world body and the free joint."""
    at = put(sim.observation, 0, sim.qpos[int(k.first) :])
    at = put(sim.observation, at, sim.qvel)
    body, joint = int(k.v5), 6 * int(k.v5)
    if k.shows_cinert != 0:
        at = put(sim.observation, at, sim.cinert[body:].ravel())
    if k.shows_cvel != 0:
        at = put(sim.observation, at, sim.cvel[body:].ravel())
    if k.shows_qfrc_actuator != 0:
        at = put(sim.observation, at, sim.qfrc_actuator[joint:])
    if k.shows_cfrc_ext != 0:
        put(sim.observation, at, sim.cfrc_ext[body:].ravel())


class Humanlike(Locomotion):
    """The long observation of Humanoid and HumanoidStandup: inertias, velocities and forces of every body."""

    skipped = 2
    contact_forces = True
    observe = observe_body

    def constants(self) -> dict[str, float]:
        """Return what is shown too."""
        parts = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
        shown = {
            f"shows_{name}": float(getattr(self.reference, f"_include_{name}_in_observation", True) is True)
            for name in parts
        }
        return {**super().constants(), **shown}


@helper
def centre_of_mass(sim: Simulation, k: Constants) -> float:
    """Return the x coordinate of the centre of mass."""
    total = 0.0
    for body in range(len(sim.body_mass)):
        total += sim.body_mass[body] * sim.xipos[body, 0]
    return total / k.mass


@progress
def body_x(sim: Simulation, k: Constants) -> float:
    """Return the x coordinate of the centre of mass."""
    return centre_of_mass(sim, k)


@helper
def stands(sim: Simulation, k: Constants) -> bool:
    """Return whether the torso is neither too low nor too high."""
    return k.low_z < sim.qpos[2] < k.high_z


@reward
def walk_reward(sim: Simulation, k: Constants, before: float) -> float:
    """Return forward and healthy reward minus costs of control and, in v5, contacts."""
    forward = k.forward_weight * ((centre_of_mass(sim, k) - before) / k.dt)
    costs = k.control_weight * sum_of_squares(sim.ctrl)
    if k.v5 != 0:
        costs += clipped(k.contact_weight * sum_of_squares(sim.cfrc_ext), k.low_contact, k.high_contact)
    return forward + healthy_reward(k, stands(sim, k)) - costs


@ending
def walk_ended(sim: Simulation, k: Constants) -> bool:
    """Return whether the torso is too low or too high, if that ends an episode."""
    return k.terminates != 0 and not stands(sim, k)


class Humanoid(Humanlike):
    """Walk forwards on two legs."""

    progress, reward, ended = body_x, walk_reward, walk_ended

    def constants(self) -> dict[str, float]:
        """Return the mass, the range of heights and the cost of contacts too."""
        reference = self.reference
        low, high = getattr(reference, "_contact_cost_range", (0.0, 0.0))
        own = {
            "mass": reference.model.body_mass.sum(),
            "low_z": reference._healthy_z_range[0],
            "high_z": reference._healthy_z_range[1],
            "contact_weight": getattr(reference, "_contact_cost_weight", 0.0),
            "low_contact": low,
            "high_contact": high,
        }
        return {**super().constants(), **{name: float(value) for name, value in own.items()}}


@reward
def rise_reward(sim: Simulation, k: Constants, before: float) -> float:
    """Return height minus costs of control and impacts, plus 1."""
    control = k.control_weight * sum_of_squares(sim.ctrl)
    impact = clipped(k.impact_weight * sum_of_squares(sim.cfrc_ext), k.low_impact, k.high_impact)
    return sim.qpos[2] / k.timestep - control - impact + 1


class HumanoidStandup(Humanlike):
    """Stand up from lying on the ground."""

    reward = rise_reward

    def constants(self) -> dict[str, float]:
        """Return the costs, which v4 has as numbers in its code."""
        reference = self.reference
        impact = reference._impact_cost_range if self.v5 else (-np.inf, 10.0)
        own = {
            "timestep": reference.model.opt.timestep,
            "control_weight": reference._ctrl_cost_weight if self.v5 else 0.1,
            "impact_weight": reference._impact_cost_weight if self.v5 else 0.5e-6,
            "low_impact": impact[0],
            "high_impact": impact[1],
            "reset_noise": reference._reset_noise_scale if self.v5 else 0.01,
        }
        return {**super().constants(), **{name: float(value) for name, value in own.items()}}

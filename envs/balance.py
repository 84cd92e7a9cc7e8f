"""Reacher, InvertedPendulum, InvertedDoublePendulum."""

import math

import numpy as np

from .physics import (
    Constants,
    Generator,
    Simulation,
    all_finite,
    clipped,
    control_cost,
    ending,
    first_state,
    helper,
    length,
    observation,
    progress,
    reward,
    squared,
    uniform,
)
from .task import GymTask, gaussian_start

REACH, ARM_NOISE, ARM_SPEED = 0.2, 0.1, 0.005  # of Reacher's first states


@helper
def distance(sim: Simulation, k: Constants) -> float:
    """Return the distance between fingertip and target."""
    return length(sim, sim.xpos[int(k.fingertip)] - sim.xpos[int(k.target)])


@observation
def observe_arm(sim: Simulation, k: Constants) -> None:
    """Show the arm's angles as cosines and sines, the target, velocities, and the way to the target."""
    out = sim.observation
    for i in range(2):
        out[i], out[2 + i] = math.cos(sim.qpos[i]), math.sin(sim.qpos[i])
        out[4 + i], out[6 + i] = sim.qpos[2 + i], sim.qvel[i]
    for i in range(8, len(out)):
        out[i] = sim.xpos[int(k.fingertip), i - 8] - sim.xpos[int(k.target), i - 8]


@progress
def minus_distance(sim: Simulation, k: Constants) -> float:
    """Return minus the distance between fingertip and target."""
    return -distance(sim, k)


@reward
def reach_reward(sim: Simulation, k: Constants, before: float) -> float:
    """Return minus distance, of v4 before the step and of v5 after it, minus squared actions."""
    if k.v5 == 0:
        return before - control_cost(sim, 1.0)
    return -distance(sim, k) * k.distance_weight + -control_cost(sim, k.control_weight)


@first_state
def reset_arm(sim: Simulation, k: Constants, rng: Generator) -> None:
    """Draw the arm near its rest and a target within reach."""
    joints, goal = len(sim.qpos), np.empty(2)
    for i in range(joints):
        sim.qpos[i] = uniform(rng, -ARM_NOISE, ARM_NOISE) + sim.init_qpos[i]
    while True:
        goal[0] = uniform(rng, -REACH, REACH)
        goal[1] = uniform(rng, -REACH, REACH)
        if length(sim, goal) < REACH:
            break
    sim.qpos[joints - 2 :] = goal
    for i in range(len(sim.qvel)):
        sim.qvel[i] = sim.init_qvel[i] + uniform(rng, -ARM_SPEED, ARM_SPEED)
    sim.qvel[len(sim.qvel) - 2 :] = 0


class Reacher(GymTask):
    """Reach a target with the tip of an arm. v4 pays for the distance before a step, v5 for the one after it."""

    observe, progress, reward, reset = observe_arm, minus_distance, reach_reward, reset_arm

    def constants(self) -> dict[str, float]:
        """Return the bodies and weights too."""
        reference = self.reference
        return {
            **super().constants(),
            **{name: float(reference.data.body(name).id) for name in ("fingertip", "target")},
            "distance_weight": float(getattr(reference, "_reward_dist_weight", 1.0)),
            "control_weight": float(getattr(reference, "_reward_control_weight", 1.0)),
        }


@observation
def observe_pole(sim: Simulation, k: Constants) -> None:
    """Show positions and velocities."""
    n = len(sim.qpos)
    sim.observation[:n] = sim.qpos
    sim.observation[n:] = sim.qvel


@helper
def pole_fallen(sim: Simulation) -> bool:
    """Return whether the pole leans too far, or the state is not finite."""
    return not all_finite(sim) or abs(sim.qpos[1]) > 0.2


@reward
def stand_reward(sim: Simulation, k: Constants, before: float) -> float:
    """Return 1 for every step, in v5 only while the pole stands."""
    return 0.0 if k.v5 != 0 and pole_fallen(sim) else 1.0


@ending
def stand_ended(sim: Simulation, k: Constants) -> bool:
    """Return whether the pole has fallen."""
    return pole_fallen(sim)


class InvertedPendulum(GymTask):
    """Keep a pole upright on a cart."""

    observe, reward, ended = observe_pole, stand_reward, stand_ended

    def constants(self) -> dict[str, float]:
        """Return the noise of first states, which v4 has as a number in its code."""
        return {**super().constants(), **({} if self.v5 else {"reset_noise": 0.01})}


@observation
def observe_poles(sim: Simulation, k: Constants) -> None:
    """Show the cart's position, sines and cosines of the angles, velocities and constraint forces."""
    out = sim.observation
    out[0] = sim.qpos[0]
    for i in range(2):
        out[1 + i], out[3 + i] = math.sin(sim.qpos[1 + i]), math.cos(sim.qpos[1 + i])
    for i in range(3):
        out[5 + i] = clipped(sim.qvel[i], -10.0, 10.0)
    for i in range(8, len(out)):
        out[i] = clipped(sim.qfrc_constraint[i - 8], -10.0, 10.0)


@reward
def balance_reward(sim: Simulation, k: Constants, before: float) -> float:
    """Return the reward for standing minus costs of distance and spin."""
    x, y = sim.site_xpos[0, 0], sim.site_xpos[0, 2]
    away = 0.01 * squared(sim, x) + squared(sim, y - 2)
    spin = 0.001 * squared(sim, sim.qvel[1]) + 0.005 * squared(sim, sim.qvel[2])
    alive = 0.0 if k.v5 != 0 and y <= 1 else k.healthy_reward
    return alive - away - spin


@ending
def balance_ended(sim: Simulation, k: Constants) -> bool:
    """Return whether the upper pole's tip is low."""
    return sim.site_xpos[0, 2] <= 1


class InvertedDoublePendulum(GymTask):
    """Keep two poles, one on top of the other, upright on a cart."""

    observe, reward, ended, reset = observe_poles, balance_reward, balance_ended, gaussian_start

    def constants(self) -> dict[str, float]:
        """Return the reward for standing and the noise of first states, which v4 has as numbers in its code."""
        own = {"healthy_reward": float(self.reference._healthy_reward)} if self.v5 else {"healthy_reward": 10.0}
        return {**super().constants(), **own, **({} if self.v5 else {"reset_noise": 0.1})}

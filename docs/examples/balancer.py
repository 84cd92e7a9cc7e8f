"""A robot of one's own: it balances on a wheel, and drives to a mark."""

from geonpg.envs import Robot, register
from geonpg.envs.physics import (
    clipped,
    control_cost,
    ending,
    first_state,
    helper,
    observation,
    progress,
    reward,
    uniform,
)

X, HEIGHT, LEAN, WHEEL, MARK = range(5)  # the joints, in the order of balancer.xml


@helper
def distance(sim):
    """Return how far away the mark is."""
    return abs(sim.qpos[MARK] - sim.qpos[X])


@observation
def observe(sim, k):
    """Show the way to the mark, at most one metre of it, the lean, and how fast things move."""
    sim.observation[0] = clipped(sim.qpos[MARK] - sim.qpos[X], -1.0, 1.0)
    sim.observation[1] = sim.qpos[LEAN]
    sim.observation[2] = sim.qvel[X]
    sim.observation[3] = sim.qvel[LEAN]
    sim.observation[4] = sim.qvel[WHEEL]


@progress
def nearness(sim, k):
    """Return minus the distance from the mark."""
    return -distance(sim)


@reward
def approach(sim, k, before):
    """Pay for being upright, for the way to the mark and for being there, less the cost of the motor."""
    way = (-distance(sim) - before) / k.dt
    there = k.there if distance(sim) < k.near else 0.0
    return 1.0 + k.speed * way + there - control_cost(sim, k.control)


@ending
def fallen(sim, k):
    """Return whether it leans too far."""
    return abs(sim.qpos[LEAN]) > k.lean


@first_state
def begin(sim, k, rng):
    """Draw a small lean, and a place for the mark."""
    sim.qpos[LEAN] = uniform(rng, -k.reset_noise, k.reset_noise)
    sim.qpos[MARK] = uniform(rng, -k.farthest, k.farthest)


class Balancer(Robot):
    """Balance on a wheel, and drive to the mark."""

    model = "balancer.xml"
    frame_skip = 4  # steps of 0.02 seconds
    observation_size = 5
    time_limit = 500
    defaults = {  # what the functions read as k
        "reset_noise": 0.05,
        "farthest": 2.0,
        "near": 0.1,
        "there": 1.0,
        "speed": 1.0,
        "control": 0.01,
        "lean": 0.6,
    }
    joints_only = True  # nothing but qpos and qvel is observed
    observe, progress, reward, ended, reset = observe, nearness, approach, fallen, begin


register("Balancer-v0", Balancer)

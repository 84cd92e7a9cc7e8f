"""Arithmetic that must round as numpy does, for functions of tasks."""

import math

import numpy as np

from .calls import call_double, fused
from .functions import Array, Simulation, helper

UNROLLED, BLOCK = 8, 128  # numpy sums eight numbers side by side, and more than 128 in halves


@helper
def summed(x: Array) -> float:
    """Sum in numpy's order of additions."""
    n = len(x)
    if n < UNROLLED:
        total = x.dtype.type(0)
        for i in range(n):
            total += x[i]
        return total
    if n > BLOCK:
        half = n // 2
        half -= half % UNROLLED
        return summed(x[:half]) + summed(x[half:])
    a, b, c, d, e, f, g, h = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    whole = n - n % UNROLLED
    for i in range(UNROLLED, whole, UNROLLED):
        a += x[i]
        b += x[i + 1]
        c += x[i + 2]
        d += x[i + 3]
        e += x[i + 4]
        f += x[i + 5]
        g += x[i + 6]
        h += x[i + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(whole, n):
        total += x[i]
    return total


@helper
def sum_of_squares(x: Array) -> float:
    """Sum the squares of an array, as `np.sum(np.square(x))` does."""
    return summed(np.square(x.ravel()))


@helper
def control_cost(sim: Simulation, weight: float) -> float:
    """Weigh the sum of squared actions, as `weight * np.sum(np.square(action))` does in the action's own precision."""
    if sim.single:
        return float(np.float32(weight) * summed(np.square(sim.action.astype(np.float32))))
    return weight * sum_of_squares(sim.action)


@helper
def clipped(x: float, low: float, high: float) -> float:
    """Bring a number between bounds, as `np.clip` does; NaN stays NaN."""
    if x < low:
        return low
    return high if x > high else x


@helper
def squared(sim: Simulation, x: float) -> float:
    """Square a number as `x**2` does, by the C library's pow, which does not always round like x * x."""
    return call_double(sim.power, (x, 2.0))


@helper
def length(sim: Simulation, x: Array) -> float:
    """Compute the length of a vector of a few numbers, as `np.linalg.norm` does."""
    total = 0.0
    for i in range(len(x)):
        total = fused(x[i], x[i], total) if sim.fused else total + x[i] * x[i]
    return math.sqrt(total)


@helper
def all_finite(sim: Simulation) -> bool:
    """Return whether all positions and velocities are finite."""
    return bool(np.isfinite(sim.qpos).all() and np.isfinite(sim.qvel).all())

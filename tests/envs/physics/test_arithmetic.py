"""Sums, squares and lengths against numpy, bit by bit: an environment's rewards are made of them."""

import itertools
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from geonpg.envs.physics import all_finite, clipped, control_cost, length, squared, sum_of_squares, summed
from geonpg.envs.physics.functions import SIMULATION, simulation_at
from geonpg.envs.physics.library import dot_is_fused, power_function
from geonpg.envs.physics.tables import Table

ODD = (0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1.7e308)


def numbers(shape: int | tuple[int, ...], dtype: Any = np.float64, seed: int = 0) -> NDArray[Any]:
    """Numbers of very different sizes, whose sums depend on the order of additions."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * 10.0 ** rng.uniform(-4, 4, size=shape)).astype(dtype)


def same(a: float, b: float) -> bool:
    """Equal to the last bit, NaN included."""
    return np.float64(a).tobytes() == np.float64(b).tobytes() or bool(np.isnan(a) and np.isnan(b))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_numpys(dtype: Any) -> None:
    x = numbers(300, dtype)
    for n in range(301):
        assert summed(x[:n]) == np.sum(x[:n])
        assert sum_of_squares(x[:n]) == np.sum(np.square(x[:n]))
    differently = sum(float(np.sum(x[:n])) != sum(x[:n].tolist()) for n in range(301))
    assert differently > 200, "the order of additions was not tested"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_matrices_are_numpys(dtype: Any) -> None:
    """Contact forces have six numbers for each body."""
    for rows, columns in itertools.product((1, 2, 13, 14, 25, 50), (3, 6, 10)):
        x = numbers((rows, columns), dtype, rows)
        assert sum_of_squares(x) == np.sum(np.square(x))


def test_clipped_is_numpys() -> None:
    for x in (*ODD, *numbers(100)):
        for low, high in ((-1.0, 1.0), (-np.inf, 10.0), (0.0, np.inf), (2.0, 2.0)):
            assert same(clipped(float(x), low, high), np.clip(np.float64(x), low, high))


@pytest.fixture(scope="module")
def table() -> Table:
    return Table(SIMULATION, power=power_function(), fused=int(dot_is_fused()))


@numba.njit
def squares_at(address: int, x: Any, out: Any) -> None:
    sim = simulation_at(address)
    for i in range(len(x)):
        out[i] = squared(sim, x[i])


def test_squared_is_the_power_of_a_number(table: Table) -> None:
    """Of a number, as in gymnasium's `x**2`: numpy multiplies arrays, and the C library's pow may round otherwise."""
    x = np.concatenate([numbers(5000), ODD])
    found = np.empty_like(x)
    squares_at(table.address, x, found)
    with np.errstate(over="ignore"):
        assert all(map(same, found, [number**2 for number in x]))


@numba.njit
def lengths_at(address: int, x: Any, out: Any) -> None:
    sim = simulation_at(address)
    for i in range(len(x)):
        out[i] = length(sim, x[i])


@pytest.mark.parametrize("size", [2, 3])
def test_length_is_numpys_norm(size: int, table: Table) -> None:
    x = np.random.default_rng(0).normal(size=(5000, size))
    found = np.empty(len(x))
    lengths_at(table.address, x, found)
    assert np.array_equal(found, [np.linalg.norm(row) for row in x])


@numba.njit
def cost_at(address: int, weight: float) -> float:
    return control_cost(simulation_at(address), weight)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_control_cost_is_computed_in_the_precision_of_the_action(dtype: Any, table: Table) -> None:
    weight: float = 0.1
    for n in range(1, 22):
        action = np.random.default_rng(n).uniform(-1, 1, n).astype(dtype)
        table.fill(action=action.astype(np.float64), single=int(dtype is np.float32))
        assert cost_at(table.address, weight) == weight * np.sum(np.square(action))


@numba.njit
def finite_at(address: int) -> bool:
    return all_finite(simulation_at(address))


def test_a_state_is_finite_if_all_of_it_is(table: Table) -> None:
    for field, other in (("qpos", "qvel"), ("qvel", "qpos")):
        for value, finite in ((1e308, True), (np.nan, False), (-np.inf, False)):
            joints = np.zeros(5)
            joints[3] = value
            table.fill(**{field: joints, other: np.ones(4)})
            assert finite_at(table.address) == finite

"""Random numbers of compiled functions against numpy's own, and functions that are compiled for constants."""

import ctypes
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from geonpg.envs.physics import Constants, Simulation, constants_type, normal, progress, uniform
from geonpg.envs.physics.calls import table_at
from geonpg.envs.physics.functions import GENERATOR, SIMULATION
from geonpg.envs.physics.simulations import generator_table
from geonpg.envs.physics.tables import Table

generator_at = table_at(GENERATOR)


@numba.njit
def uniforms(address: int, low: float, high: float, out: Any) -> None:
    for i in range(len(out)):
        out[i] = uniform(generator_at(address), low, high)


@numba.njit
def normals(address: int, out: Any) -> None:
    for i in range(len(out)):
        out[i] = normal(generator_at(address))


def ours_uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    table, out = generator_table(rng), np.empty(n)
    uniforms(table.address, -0.3, 1.7, out)
    return out


def ours_normal(rng: np.random.Generator, n: int) -> np.ndarray:
    table, out = generator_table(rng), np.empty(n)
    normals(table.address, out)
    return out


DRAWS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "uniform": (ours_uniform, lambda rng, n: rng.uniform(-0.3, 1.7, n)),
    "normal": (ours_normal, lambda rng, n: rng.standard_normal(n)),
}


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937])
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_numpys_and_leave_the_generator_where_numpy_does(name: str, bits: Any) -> None:
    """In turns: a reset draws, gymnasium's own code draws, and so on; normal numbers are rejected now and then."""
    ours, theirs = (np.random.Generator(bits(5)) for _ in range(2))
    compiled, numpys = DRAWS[name]
    for n in (1, 7, 3000):
        assert np.array_equal(compiled(ours, n), numpys(theirs, n))
        assert str(ours.bit_generator.state) == str(theirs.bit_generator.state)
        assert ours.integers(1000) == theirs.integers(1000)


def test_a_generator_that_is_restored_goes_on() -> None:
    """Into a table that was made before."""
    rng = np.random.default_rng(1)
    table, out = generator_table(rng), np.empty(5)
    kept = rng.bit_generator.state
    normals(table.address, out)
    first = out.copy()
    rng.bit_generator.state = kept
    normals(table.address, out)
    assert np.array_equal(out, first)


@progress
def weighted(sim: Simulation, k: Constants) -> float:
    """Read constants by their names."""
    return k.weight * sim.qpos[1] + k.shift


def test_a_function_is_compiled_for_each_kind_of_constants() -> None:
    """In whatever order a task has them; what has been compiled is not compiled again."""
    simulation = Table(SIMULATION, qpos=np.array([1.0, 2.0, 3.0]))
    addresses = []
    for names in (("weight", "shift"), ("other", "shift", "weight")):
        kind = constants_type(names)
        constants = Table(kind, weight=10.0, shift=0.5)
        addresses.append(weighted.address(kind))
        call = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_int64)(addresses[-1])
        assert call(simulation.address, constants.address) == 20.5
        constants.fill(weight=100.0)
        assert call(simulation.address, constants.address) == 200.5
        assert weighted.address(constants_type(names)) == addresses[-1]
    assert addresses[0] != addresses[1]
    assert (weighted.__name__, weighted.__doc__) == ("weighted", "Read constants by their names.")

"""The functions of a task, compiled: what they see, and how they are written.

A task is five small functions of one simulation (`envs/task.py`). Numba compiles them at first use, without a C
compiler, and keeps the result on the disk. `sim` has MuJoCo's arrays as attributes, `k` the task's constants, and `rng`
is for drawing random numbers by `uniform` and `normal`.
"""

from typing import Protocol, TypeVar, cast

import numba
import numpy as np
from numba.core import types
from numba.core.ccallback import CFunc
from numpy.typing import NDArray

from .calls import call_double, table_at
from .sources import Compiled, checked, kept
from .tables import FLOAT, INT, Kind, TableType

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Python = TypeVar("Python", bound=Compiled)


class Simulation(Protocol):
    """One simulation as the functions of a task see it: MuJoCo's own arrays, by MuJoCo's names, and a few of ours."""

    model: int  # addresses of MuJoCo's own structures
    data: int
    observation: Array  # for `observe` to fill in
    action: Array  # of the step just taken; a policy's is within its bounds
    single: int  # 1 if the action came in single precision, in which numpy would compute with it
    init_qpos: Array  # the state that episodes begin near
    init_qvel: Array
    power: int  # address of the C library's pow
    fused: int  # 1 if numpy's dot products round once per term
    body_mass: Array  # of MjModel
    qpos: Array  # these and what follows of MjData
    qvel: Array
    act: Array
    ctrl: Array
    qacc: Array
    sensordata: Array
    qfrc_actuator: Array
    qfrc_constraint: Array
    actuator_force: Array
    xpos: Array  # from here on [bodies, sites or geoms, numbers]
    xquat: Array
    xmat: Array
    xipos: Array
    cinert: Array
    cvel: Array
    cfrc_ext: Array
    subtree_com: Array
    site_xpos: Array
    geom_xpos: Array


class Constants(Protocol):
    """A task's constants, each a number under its name."""

    def __getattr__(self, name: str) -> float: ...


class Generator(Protocol):
    """numpy's random generator of one environment."""

    next_double: int
    state: int
    next_normal: int
    bits: int


OURS: dict[str, Kind] = {
    "observation": ("f8", 1),
    "action": ("f8", 1),
    "single": INT,
    "init_qpos": ("f8", 1),
    "init_qvel": ("f8", 1),
    "power": INT,
    "fused": INT,
}
OF_MODEL: dict[str, Kind] = {"body_mass": ("f8", 1)}
VECTORS = ("qpos", "qvel", "act", "ctrl", "qacc", "sensordata", "qfrc_actuator", "qfrc_constraint", "actuator_force")
ROWS = ("xpos", "xquat", "xmat", "xipos", "cinert", "cvel", "cfrc_ext", "subtree_com", "site_xpos", "geom_xpos")
OF_DATA: dict[str, Kind] = {**dict.fromkeys(VECTORS, ("f8", 1)), **dict.fromkeys(ROWS, ("f8", 2))}
SIMULATION = TableType("Simulation", {"model": INT, "data": INT, **OURS, **OF_MODEL, **OF_DATA})
GENERATOR = TableType("Generator", {"next_double": INT, "state": INT, "next_normal": INT, "bits": INT})
simulation_at = table_at(SIMULATION)


def helper(python: Python) -> Python:
    """Compile a function that compiled ones may call."""
    return cast(Python, kept(numba.njit, python, error_model="numpy"))


@helper
def uniform(rng: Generator, low: float, high: float) -> float:
    """Draw a number between bounds, as numpy's `Generator.uniform` does."""
    return low + (high - low) * call_double(rng.next_double, (rng.state,))


@helper
def normal(rng: Generator) -> float:
    """Draw a normal number, as numpy's `Generator.standard_normal` does."""
    return call_double(rng.next_normal, (rng.bits,))


def constants_type(names: tuple[str, ...]) -> TableType:
    """Return the type of the constants of a task."""
    return TableType("Constants", dict.fromkeys(names, FLOAT))


class Function:
    """A function of a task, compiled when its address is asked for, and once for each kind of constants.

    decorator: the name of the one that made it.
    """

    def __init__(self, python: Compiled, decorator: str, result: types.Type, *more: types.Type) -> None:
        self.python, self.decorator, self._result, self._more = python, decorator, result, more
        self._compiled: dict[tuple[str, bool], CFunc] = {}
        self.__doc__, self.__name__ = python.__doc__, python.__name__

    def address(self, constants: TableType, checks: bool = False) -> int:
        """Return the address of the compiled function; if it checks, an index beyond the end of an array raises."""
        key = constants.name, checks
        if key not in self._compiled:
            signature = self._result(SIMULATION, constants, *self._more)
            python = checked(self.python) if checks else self.python
            mark, options = "checked" if checks else "", {"error_model": "numpy", "boundscheck": checks}
            self._compiled[key] = kept(numba.cfunc, python, signature, mark=mark, **options)
        return code_address(self._compiled[key])


def code_address(compiled: CFunc) -> int:
    """Return where the machine's code of a compiled function lies."""
    assert compiled.address is not None
    return int(compiled.address)


def observation(python: Compiled) -> Function:
    """Compile `observe(sim, k)`, which fills in `sim.observation`."""
    return Function(python, "observation", types.void)


def progress(python: Compiled) -> Function:
    """Compile `progress(sim, k)`: a number that the reward of the next step compares with, a position for example."""
    return Function(python, "progress", types.float64)


def reward(python: Compiled) -> Function:
    """Compile `reward(sim, k, before)`: the reward of a step; `before` is the progress before it."""
    return Function(python, "reward", types.float64, types.float64)


def ending(python: Compiled) -> Function:
    """Compile `ended(sim, k)`: whether the state after a step ends the episode."""
    return Function(python, "ending", types.int64)


def first_state(python: Compiled) -> Function:
    """Compile `reset(sim, k, rng)`, which sets `sim.qpos` and `sim.qvel` of a new episode; both are the model's own."""
    return Function(python, "first_state", types.void, GENERATOR)

"""One simulation whose functions Python calls one by one: for gymnasium's interface, and to try them out."""

import ctypes
from collections.abc import Mapping

import mujoco
import numpy as np
from numpy.typing import NDArray

from .functions import Array, constants_type
from .simulations import Physics, generator_table, simulation_table
from .tables import Table

WORD, NUMBER = ctypes.c_int64, ctypes.c_double
FORMS = {  # result, then the addresses of simulation and constants, then what else a function takes
    "observe": ctypes.CFUNCTYPE(None, WORD, WORD),
    "progress": ctypes.CFUNCTYPE(NUMBER, WORD, WORD),
    "reward": ctypes.CFUNCTYPE(NUMBER, WORD, WORD, NUMBER),
    "ended": ctypes.CFUNCTYPE(WORD, WORD, WORD),
    "reset": ctypes.CFUNCTYPE(None, WORD, WORD, WORD),
}


class Single:
    """The functions of a task on one simulation.

    shared: model, functions and constants.
    data: the simulation, which is the caller's to step.
    checks: whether an index beyond the end of an array raises, as `Function.address` says.
    """

    def __init__(self, shared: Physics, data: mujoco.MjData, checks: bool = False) -> None:
        kind = constants_type(tuple(shared.constants))
        self._simulation, self._constants = simulation_table(shared, data), Table(kind, **shared.constants)
        self._at = self._simulation.address, self._constants.address
        self._owners = shared.functions  # of the machine's code
        self._functions = {name: FORMS[name](self._owners[name].address(kind, checks)) for name in FORMS}

    @property
    def observation(self) -> Array:
        """The room that `observe` fills in."""
        found: Array = self._simulation.kept["observation"]
        return found

    def set_constants(self, constants: Mapping[str, float]) -> None:
        """Change the values of the task's constants."""
        self._constants.fill(**constants)

    def set_action(self, action: NDArray[np.floating]) -> None:
        """Show the action of a step to the functions."""
        self._simulation.kept["action"][:] = action
        self._simulation.fill(single=int(action.dtype == np.float32))

    def observe(self) -> Array:
        """Return the observation, in an array of its own."""
        self._functions["observe"](*self._at)
        return self.observation.copy()

    def progress(self) -> float:
        """Return what the next step's reward compares with."""
        return float(self._functions["progress"](*self._at))

    def reward(self, before: float) -> float:
        """Return the reward of a step; `before` is the progress before it."""
        return float(self._functions["reward"](*self._at, before))

    def ended(self) -> bool:
        """Return whether the state after a step ends the episode."""
        return bool(self._functions["ended"](*self._at))

    def reset(self, generator: np.random.Generator) -> None:
        """Draw the first state of an episode, of which nothing is computed yet."""
        table = generator_table(generator)  # which must outlive the call
        self._functions["reset"](*self._at, table.address)

"""Simulations in compiled code: rollouts, steps and resets without the interpreter.

`functions.py` says how the functions of a task are written, `kernel.py` is what threads run, `simulations.py` what
Python sees of it.
"""

from .arithmetic import all_finite, clipped, control_cost, length, squared, sum_of_squares, summed
from .discounting import discounted_sums
from .functions import (
    Array,
    Constants,
    Floats,
    Function,
    Generator,
    Integers,
    Simulation,
    constants_type,
    ending,
    first_state,
    helper,
    normal,
    observation,
    progress,
    reward,
    uniform,
)
from .kernel import FUNCTIONS
from .policy import LINEAR, RELU, TANH, means
from .simulations import PHYSICS, Acting, Physics, Recording, Simulations
from .single import Single

__all__ = [
    "FUNCTIONS",
    "LINEAR",
    "PHYSICS",
    "RELU",
    "TANH",
    "Acting",
    "Array",
    "Constants",
    "Floats",
    "Function",
    "Generator",
    "Integers",
    "Physics",
    "Recording",
    "Simulation",
    "Simulations",
    "Single",
    "all_finite",
    "clipped",
    "constants_type",
    "control_cost",
    "discounted_sums",
    "ending",
    "first_state",
    "helper",
    "length",
    "means",
    "normal",
    "observation",
    "progress",
    "reward",
    "squared",
    "sum_of_squares",
    "summed",
    "uniform",
]

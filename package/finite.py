"""Check that environments return finite numbers that float32 holds, and name the environment that does not."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # whatever an environment returns
Observations = Array | dict[str, Array] | tuple[Array, ...]

LARGEST = float(np.finfo(np.float32).max)  # what networks and buffers hold
LARGEST_SQUARE = LARGEST**2
FEW = 8192  # of more numbers BLAS makes a product in threads, which stay awake for milliseconds afterwards


class BrokenEnvironment(RuntimeError):
    """An environment raised an error, or returned a number that is NaN, infinite or too large for float32.

    frames: where in its own code the error was raised, as a traceback shows it.
    """

    def __init__(self, message: str, frames: str = "") -> None:
        super().__init__(message)
        self.frames = frames


def check_finite(observations: Observations, rewards: Array | None = None, of: str = "") -> None:
    """Raise BrokenEnvironment if an observation or reward of some environment is not a finite float32: [n, ...], [n].

    of: appended to the environment's index in the message, such as " of Walker2d-v4".
    """
    for part in parts(observations):
        if not fits(part):
            i, value = first_broken(part)
            raise BrokenEnvironment(f"environment {i}{of} returned an observation of {objection(value)}")
    if rewards is not None and not fits(rewards):
        i, value = first_broken(rewards)
        raise BrokenEnvironment(f"environment {i}{of} returned a reward of {objection(value)}")


def check_finals(dones: Array, infos: Sequence[Mapping[str, Any]], of: str = "") -> None:
    """Raise BrokenEnvironment if the last observation of an ended episode is not a finite float32."""
    for i in dones.nonzero()[0].tolist():
        final = infos[i].get("terminal_observation")
        for part in parts(final) if final is not None else ():
            if not fits(np.asarray(part)):
                value = first_broken(np.asarray(part)[None])[1]
                raise BrokenEnvironment(f"environment {i}{of} returned an observation of {objection(value)}")


def parts(observations: Observations) -> Iterable[Array]:
    """Return the arrays of an observation: one, or those of a dictionary or tuple."""
    if isinstance(observations, dict):
        return observations.values()
    return observations if isinstance(observations, tuple) else (observations,)


def fits(numbers: Array) -> bool:
    """Return whether all numbers are finite in float32; integers always are."""
    if numbers.dtype.kind != "f":
        return True
    # the cheap test first; it also fails for numbers whose square overflows
    if numbers.size <= FEW and float(np.vdot(numbers, numbers)) <= LARGEST_SQUARE:  # in float64, where it is finite
        return True
    return numbers.size == 0 or (float(numbers.max()) <= LARGEST and float(numbers.min()) >= -LARGEST)


def first_broken(rows: Array) -> tuple[int, float]:
    """Return the first number that does not fit, and its row."""
    where = np.argwhere(~(np.abs(rows.astype(np.float64)) <= LARGEST))[0]
    return int(where[0]), float(rows[tuple(where)])


def objection(value: float) -> str:
    """Say what is wrong with a number, and what would be right."""
    if np.isfinite(value):
        return f"{value:g}, which is too large for float32: scale it below {LARGEST:.1e}"
    return f"{value}, which is not finite" + (f" (float32 ends at {LARGEST:.1e})" if np.isinf(value) else "")

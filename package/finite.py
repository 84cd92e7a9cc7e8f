"""What an environment may return: numbers that float32 holds. Anything else is reported in the environment's name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Observations = Any  # an array, or a dictionary of arrays

LARGEST = float(np.finfo(np.float32).max)  # what networks and buffers hold


class BrokenEnvironment(RuntimeError):
    """An environment raised an error, or returned something that is not a number.

    frames: where in its own code, as a traceback shows it.
    """

    def __init__(self, message: str, frames: str = "") -> None:
        super().__init__(message)
        self.frames = frames


def check_finite(observations: Observations, rewards: Array, of: str = "") -> None:
    """Raise BrokenEnvironment if an observation or reward is not a finite float32; `of` says which environments'."""
    for seen in observations.values() if isinstance(observations, dict) else (observations,):
        if not fits(seen):
            i, value = first_broken(seen)
            raise BrokenEnvironment(f"environment {i}{of} returned an observation of {objection(value)}")
    if not fits(rewards):
        i, value = first_broken(rewards)
        raise BrokenEnvironment(f"environment {i}{of} returned a reward of {objection(value)}")


def check_finals(dones: Array, infos: list[dict[str, Any]]) -> None:
    """The same of what ended episodes saw last."""
    for i in np.flatnonzero(dones):
        final = infos[i].get("terminal_observation")
        for part in final.values() if isinstance(final, dict) else (final,):
            if part is not None and not fits(np.asarray(part)):
                value = first_broken(np.asarray(part)[None])[1]
                raise BrokenEnvironment(f"environment {i} returned an observation of {objection(value)}")


def fits(numbers: Array) -> bool:
    """Whether all of them are finite in float32."""
    if numbers.dtype.kind != "f":
        return True
    # the cheap test first; it also fails for numbers whose square overflows
    return float(np.vdot(numbers, numbers)) <= LARGEST**2 or bool((np.abs(numbers.astype(np.float64)) <= LARGEST).all())


def first_broken(rows: Array) -> tuple[int, float]:
    """The first row with a number that does not fit, and that number."""
    where = np.argwhere(~(np.abs(rows.astype(np.float64)) <= LARGEST))[0]
    return int(where[0]), float(rows[tuple(where)])


def objection(value: float) -> str:
    if np.isfinite(value):
        return f"{value:g}, which is too large for float32: scale it below {LARGEST:.1e}"
    return f"{value}, which is not finite" + (f" (float32 ends at {LARGEST:.1e})" if np.isinf(value) else "")

"""The course of a network's training on disk, and what is read off it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from geonpg.errors import Refused
from geonpg.files import write_text
from geonpg.scripts.least_squares.recorder import Recorder

Array = NDArray[np.float64]
LEAST = 1e-30  # below which a loss is rounding, and has no logarithm to speak of


@dataclass(frozen=True)
class Course:
    """The lowest loss so far after so many Jacobians and processor seconds, and the solution's relative error at last.

    jacobians, seconds, loss: a number per evaluation of the loss that the optimiser made.
    """

    jacobians: list[int]
    seconds: list[float]
    loss: list[float]
    error: float

    def at_jacobians(self, count: float) -> float:
        """Return the loss that so many Jacobians have bought."""
        return self._last(self.jacobians, count)

    def at_seconds(self, seconds: float) -> float:
        """Return the loss that so much time has bought."""
        return self._last(self.seconds, seconds)

    def seconds_at(self, count: int) -> float:
        """Return when the loss after so many Jacobians was known."""
        return self.seconds[max(0, int(np.searchsorted(self.jacobians, count, "right")) - 1)]

    def _last(self, at: list[int] | list[float], where: float) -> float:
        """The loss at the last entry that is not beyond; the first one, if all are."""
        return max(LEAST, self.loss[max(0, int(np.searchsorted(at, where, "right")) - 1)])


def course_of(record: Recorder, error: float) -> Course:
    """Make a course of what was recorded."""
    points = record.points
    return Course([p.jacobians for p in points], [p.seconds for p in points], [p.loss for p in points], error)


def write_course(path: Path, course: Course) -> None:
    """Write a course whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(asdict(course)) + "\n")


def read_course(path: Path) -> Course:
    """Read a course; Refused if the file is damaged."""
    try:
        return Course(**json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise Refused(f"{path} is no course of a run: {error}; remove it") from None

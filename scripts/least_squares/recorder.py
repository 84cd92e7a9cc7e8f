"""The course of a run: its loss by Jacobians and by processor seconds, within a budget."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


class Spent(Exception):
    """The budget of a run is used up, or its target is reached."""


@dataclass(frozen=True)
class Budget:
    """When a run ends: when so many Jacobians were computed and so much time has passed, or at a target.

    seconds: of the processor.
    target: a loss at which there is nothing left to do.
    """

    jacobians: int = 0
    seconds: float = 0.0
    target: float = -math.inf


@dataclass(frozen=True)
class Point:
    """The lowest loss so far, after so many Jacobians and processor seconds."""

    jacobians: int
    seconds: float
    loss: float


class Recorder:
    """Keeps the course of a run, and ends it by raising Spent."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.points = budget, list[Point]()
        self.jacobians, self.best = 0, math.inf
        self._began = time.process_time()

    @property
    def seconds(self) -> float:
        """How long the run has taken."""
        return time.process_time() - self._began

    def note(self, loss: float) -> None:
        """Add a loss that was computed; a worse one than before counts as work only."""
        self.best = min(self.best, loss if math.isfinite(loss) else math.inf)
        now = Point(self.jacobians, self.seconds, self.best)
        self.points.append(now)
        spent = now.jacobians >= self.budget.jacobians and now.seconds >= self.budget.seconds
        if spent or self.best <= self.budget.target:
            raise Spent

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Do not count the time of what is inside."""
        paused = time.process_time()
        try:
            with torch.no_grad():
                yield
        finally:
            self._began += time.process_time() - paused

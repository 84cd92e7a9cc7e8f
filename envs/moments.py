"""Running mean and variance of rows."""

from typing import TypedDict

import numpy as np

from .arrays import Array, Numbers


class MomentsState(TypedDict):
    """The statistics as checkpoints store them."""

    count: int
    mean: Array
    squares: Array


class Moments:
    """Mean and variance of all rows seen so far, merged batch by batch without loss (Chan et al., 1979).

    size: numbers in a row.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)  # summed squared deviations from the mean

    def update(self, rows: Numbers) -> None:
        """Take in a batch of rows [n, size]."""
        mean = np.add.reduce(rows, 0) / len(rows)
        deviations = rows - mean
        deviations *= deviations
        self._merge(len(rows), mean, np.add.reduce(deviations, 0))

    def merge(self, other: "Moments") -> None:
        """Take in all rows that another has seen."""
        if other.count:
            self._merge(other.count, other.mean, other.squares)

    def _merge(self, count: int, mean: Array, squares: Array) -> None:
        total = self.count + count
        shift = mean - self.mean
        self.mean = self.mean + shift * (count / total)
        shift *= shift
        self.squares = self.squares + squares + shift * (self.count * count / total)
        self.count = total

    def columns(self, which: slice) -> "Moments":
        """Return the moments of some of the columns."""
        part = Moments(0)
        part.count, part.mean, part.squares = self.count, self.mean[which], self.squares[which]
        return part

    @property
    def variance(self) -> Array:
        """Variance of the rows seen; one before any was."""
        return self.squares / self.count if self.count else np.ones_like(self.mean)

    def get_state(self) -> MomentsState:
        """Return a copy of the statistics."""
        return {"count": self.count, "mean": self.mean.copy(), "squares": self.squares.copy()}

    def set_state(self, state: MomentsState) -> None:
        """Continue from `get_state()`."""
        self.count = int(state["count"])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.squares = np.array(state["squares"], dtype=np.float64)

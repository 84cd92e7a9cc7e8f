"""Returns and lengths of episodes in progress, and the time limit."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arrays import Array, Flags, Indices


class Episodes:
    """The episode in progress of every environment: its return and length so far, and when its time is up.

    time_limit: steps after which an episode is cut off; None for never.
    """

    def __init__(self, n_envs: int, time_limit: int | None) -> None:
        self.time_limit = time_limit or 2**62
        self.returns: Array = np.zeros(n_envs)
        self._steps = 0  # that every environment has taken, through all episodes
        self._started_at = np.zeros(n_envs, dtype=np.int64)  # `_steps` at the beginning of each episode
        self._first_timeout = self.time_limit  # the smallest `_steps` at which an episode can reach the time limit
        self._no_timeouts = np.zeros(n_envs, dtype=np.bool_)
        self._no_timeouts.flags.writeable = False  # it is handed out

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps since the beginning of each episode."""
        return self._steps - self._started_at

    def add_step(self, rewards: Array) -> Flags:
        """Count a step of every environment; return which episodes have reached the time limit."""
        self.returns += rewards
        self._steps += 1
        return self._no_timeouts if self._steps < self._first_timeout else self.lengths >= self.time_limit

    def restart(self, which: Indices) -> None:
        """Begin new episodes in some environments."""
        self.returns[which] = 0
        self._started_at[which] = self._steps
        self._first_timeout = int(self._started_at.min()) + self.time_limit

    def restore(self, returns: ArrayLike, lengths: ArrayLike) -> None:
        """Continue episodes that have come this far."""
        self.returns[:] = returns
        self._started_at[:] = self._steps - np.asarray(lengths)
        self._first_timeout = int(self._started_at.min()) + self.time_limit

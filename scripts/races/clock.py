"""The clock of a race: it runs while a contestant trains, and stands still while its policy is evaluated."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.type_aliases import PolicyPredictor

from geonpg.configs import Settings
from geonpg.envs import Normalize
from geonpg.scripts.races.rows import Row

# Minutes after which policies are evaluated, up to the end of the race: even steps on a logarithmic axis.
TICKS = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700)
MINUTE = 60.0  # seconds


class Clock:
    """Seconds since it was made, without those that it was paused.

    now: where time comes from.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now, self._began = now, now()

    @property
    def seconds(self) -> float:
        """Seconds that it has run."""
        return self._now() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the clock stand still inside."""
        before = self._now()
        try:
            yield
        finally:
            self._began += self._now() - before


class Trained(NamedTuple):
    """What a contestant has so far: a policy, the steps that it took, and how its observations are seen."""

    policy: PolicyPredictor
    steps: int
    settings: Settings  # of its environments
    normalization: Normalize | None = None


def minutes_of(end: float) -> list[float]:
    """Return the minutes after which policies of a race are evaluated, its end included."""
    return [*(minute for minute in TICKS if minute < end), end]


class Referee:
    """Says how much of a race is left, and evaluates a policy when a minute is up.

    minutes: those that are due, the last of which ends the race.
    clock: it stands still during evaluations.
    evaluate: plays deterministic episodes, and returns their returns.
    record: told all rows whenever there are new ones.
    """

    def __init__(
        self,
        minutes: list[float],
        clock: Clock,
        evaluate: Callable[[Trained], NDArray[np.float64]],
        record: Callable[[list[Row]], None],
    ) -> None:
        self.due, self.end, self.clock = list(minutes), minutes[-1] * MINUTE, clock
        self.evaluate, self.record = evaluate, record
        self.rows: list[Row] = []

    def left(self, trained: Trained) -> float:
        """Return the share of the race that is left, 1 to 0, after evaluating the policy if that is due.

        Contestants ask whenever they can be interrupted, so a policy may be a moment older than the minute it stands
        for: a row says when it was taken. A moment that is longer than from one minute to the next stands for both.
        """
        seconds = self.clock.seconds
        if seconds >= self.due[0] * MINUTE:
            with self.clock.paused():
                returns = self.evaluate(trained)
                found = trained.steps, float(returns.mean()), float(returns.std()), len(returns)
                while self.due and seconds >= self.due[0] * MINUTE:
                    self.rows.append(Row(self.due.pop(0), seconds, *found))
                self.record(self.rows)
        return max(0.0, 1.0 - seconds / self.end) if self.due else 0.0

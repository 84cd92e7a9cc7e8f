"""The clock and the referee, with a time that tests move by hand."""

from contextlib import suppress

import numpy as np
import pytest
from numpy.typing import NDArray

from geonpg.scripts.races.clock import MINUTE, Clock, Referee, Trained, minutes_of
from geonpg.scripts.races.rows import Row
from geonpg.scripts.runs.building import RAW


class Time:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class Nobody:
    """A policy that is never asked."""

    def predict(self, *args: object) -> tuple[NDArray[np.float64], None]:
        raise AssertionError


def trained(steps: int) -> Trained:
    return Trained(Nobody(), steps, RAW)


def test_a_clock_stands_still_while_it_is_paused() -> None:
    time = Time()
    clock = Clock(time)
    time.pass_(3.0)
    with clock.paused():
        time.pass_(100.0)
    assert clock.seconds == 3.0
    with suppress(KeyError), clock.paused():
        time.pass_(100.0)
        raise KeyError
    time.pass_(2.0)
    assert clock.seconds == 5.0


def test_evaluations_take_no_time_of_the_race() -> None:
    """Each takes an hour; the race ends after five minutes of training all the same."""
    time, rows = Time(), list[Row]()
    clock = Clock(time)

    def evaluate(found: Trained) -> NDArray[np.float64]:
        time.pass_(3600.0)
        return np.array([found.steps, found.steps + 2.0])

    def record(found: list[Row]) -> None:
        time.pass_(3600.0)
        rows[:] = found

    referee, steps, shares = Referee([1, 2, 5], clock, evaluate, record), 0, list[float]()
    while (share := referee.left(trained(steps))) > 0:
        shares.append(share)
        time.pass_(7.0)
        steps += 10
    assert [(row.minute, row.seconds, row.steps) for row in rows] == [(1, 63, 90), (2, 126, 180), (5, 301, 430)]
    assert [(row.mean, row.std, row.episodes) for row in rows] == [(91, 1, 2), (181, 1, 2), (431, 1, 2)]
    assert shares == pytest.approx([1 - 7 * k / 300 for k in range(43)])
    assert time.now == 1000 + 43 * 7 + 6 * 3600


def test_one_evaluation_stands_for_all_minutes_that_a_long_update_has_passed() -> None:
    time, evaluated = Time(), list[int]()
    found: list[Row] = []

    def evaluate(what: Trained) -> NDArray[np.float64]:
        evaluated.append(what.steps)
        return np.array([7.0])

    referee = Referee([1, 2, 5], Clock(time), evaluate, lambda rows: found.__setitem__(slice(None), rows))
    assert referee.left(trained(0)) == 1
    time.pass_(2.5 * MINUTE)
    assert referee.left(trained(5)) == 0.5
    assert evaluated == [5]
    assert [(row.minute, row.seconds, row.steps) for row in found] == [(1, 150, 5), (2, 150, 5)]
    time.pass_(10 * MINUTE)
    assert referee.left(trained(9)) == 0
    assert evaluated == [5, 9]
    assert found[-1].seconds == 12.5 * MINUTE


@pytest.mark.parametrize(("end", "wanted"), [(5, (1, 2, 5)), (30, (1, 2, 5, 10, 20, 30)), (0.05, (0.05,)), (6, (5, 6))])
def test_policies_are_evaluated_at_round_minutes_and_at_the_end(end: float, wanted: tuple[float, ...]) -> None:
    minutes = minutes_of(end)
    assert set(wanted) <= set(minutes)
    assert minutes == sorted(set(minutes))
    assert minutes[-1] == end

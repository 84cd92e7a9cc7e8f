"""The course of a run: what is recorded, and when a run ends."""

import math
import time

import pytest

from geonpg.scripts.least_squares.recorder import Budget, Recorder, Spent


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_run_ends_when_both_jacobians_and_time_are_spent() -> None:
    record = Recorder(Budget(jacobians=2, seconds=0.05))
    record.jacobians = 2
    record.note(1.0)  # in no time
    work(0.06)
    with pytest.raises(Spent):
        record.note(1.0)
    record = Recorder(Budget(jacobians=2, seconds=0.0))
    record.jacobians = 1
    record.note(1.0)
    record.jacobians = 2
    with pytest.raises(Spent):
        record.note(1.0)


def test_a_run_ends_at_its_target() -> None:
    record = Recorder(Budget(jacobians=100, target=1e-3))
    record.note(2e-3)
    with pytest.raises(Spent):
        record.note(1e-3)


def test_the_lowest_loss_is_kept() -> None:
    record = Recorder(Budget(jacobians=100))
    for loss in (3.0, 5.0, math.nan, 2.0, math.inf):
        record.note(loss)
        record.jacobians += 1
    assert [point.loss for point in record.points] == [3.0, 3.0, 3.0, 2.0, 2.0]
    assert [point.jacobians for point in record.points] == [0, 1, 2, 3, 4]


def test_measuring_does_not_count_as_work() -> None:
    record = Recorder(Budget(jacobians=100))
    work(0.02)
    with record.pausing():
        work(0.2)
    record.note(1.0)
    assert 0.02 <= record.points[0].seconds < 0.15


def test_the_time_that_ends_a_run_is_the_last_point_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is read twice may pass the budget in between."""
    clock = iter([0.0, 0.999, 1.001])
    monkeypatch.setattr(time, "process_time", lambda: next(clock))
    record = Recorder(Budget(seconds=1.0))
    record.note(2.0)
    with pytest.raises(Spent):
        record.note(1.0)
    assert [point.seconds for point in record.points] == [0.999, 1.001]

"""Work that is left for later is done once, in either thread, and its errors are told."""

import threading

import numpy as np
import pytest
import torch

from geonpg.agents.beside import Beside

BUSY = np.zeros(1, np.int64)


def test_nothing_was_left() -> None:
    beside = Beside[int]()
    beside.start(BUSY)
    assert beside.finish() is None


@pytest.mark.parametrize("started", [True, False])
def test_work_is_done_once(started: bool) -> None:
    beside, done = Beside[str](), list[str]()

    def work() -> str:
        done.append(threading.current_thread().name)
        return "result"

    beside.leave(work)
    assert not done
    if started:
        beside.start(BUSY)
        beside.start(BUSY)
    assert beside.finish() == "result"
    assert beside.finish() is None
    assert len(done) == 1
    assert (done[0] == threading.current_thread().name) is not started


def test_errors_are_told_where_the_result_is_asked_for() -> None:
    beside = Beside[int]()
    beside.leave(lambda: 1 // 0)
    beside.start(BUSY)
    with pytest.raises(ZeroDivisionError):
        beside.finish()
    assert beside.finish() is None


def test_it_takes_one_thread_of_torchs() -> None:
    beside = Beside[int]()
    before = torch.get_num_threads()
    try:
        beside.leave(torch.get_num_threads)
        beside.start(BUSY)
        assert beside.finish() == 1
    finally:
        torch.set_num_threads(before)


def test_a_signal_ends_the_waiting_and_not_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    beside, go_on = Beside[str](), threading.Event()

    def work() -> str:
        go_on.wait(10)
        return "result"

    beside.leave(work)
    beside.start(BUSY)
    assert beside._running is not None
    with monkeypatch.context() as patch:

        def interrupted(timeout: float | None = None) -> str:
            raise KeyboardInterrupt

        patch.setattr(beside._running, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            beside.finish()
    go_on.set()
    assert beside.finish() == "result"


def test_a_core_is_busy_as_long_as_it_takes() -> None:
    busy, go_on, beside = np.zeros(1, np.int64), threading.Event(), Beside[bool]()
    beside.start(busy)
    assert busy == 0
    beside.leave(lambda: go_on.wait(10))
    beside.start(busy)
    assert busy == 1
    go_on.set()
    assert beside.finish()
    assert busy == 0
    beside.leave(lambda: bool(1 // 0))
    beside.start(busy)
    with pytest.raises(ZeroDivisionError):
        beside.finish()
    assert busy == 0

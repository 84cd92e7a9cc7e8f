"""A queue whose engine does what a test says."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from geonpg.scripts.common.locks import AtWork
from geonpg.scripts.jobs.queue import ATTEMPTS, Ended, Outcome, Queue


@dataclass(frozen=True)
class Planned:
    """An item that ends in these ways, one after the other, and then well."""

    name: str
    ends: list[Outcome]
    done: Callable[[], None] = lambda: None


class Scripted(Queue[Planned, str]):
    """Items end at the first look."""

    slots = 2

    def __init__(self, items: Iterable[Planned]) -> None:
        super().__init__(items)
        self.started: list[str] = []
        self.halted = False

    def start(self, item: Planned) -> str:
        self.started.append(item.name)
        if item.ends[:1] == [Outcome.TAKEN]:
            raise AtWork(Path(item.ends.pop(0).name))
        return item.name

    def poll(self, item: Planned, started: str) -> Ended | None:
        assert started == item.name
        return Ended(item.ends.pop(0) if item.ends else Outcome.DONE, f"{item.name} {len(item.ends)}")

    def halt(self) -> None:
        self.halted = True


def worked(*items: Planned) -> Scripted:
    queue = Scripted(items)
    queue.work(stop=lambda: False, look=lambda: None, pause=0.0)
    assert queue.halted
    assert not queue.is_busy
    return queue


def test_they_run_in_order_and_what_follows_is_done() -> None:
    done: list[str] = []
    queue = worked(*(Planned(name, [], lambda name=name: done.append(name)) for name in "abcde"))
    assert queue.started == done == list("abcde")
    assert queue.failed == {}


@pytest.mark.parametrize("outcome", ATTEMPTS)
def test_every_outcome_has_its_number_of_attempts(outcome: Outcome) -> None:
    most = ATTEMPTS[outcome]
    queue = worked(Planned("bad", [outcome] * most), Planned("lucky", [outcome] * (most - 1)))
    assert set(queue.failed) == {"bad"}
    assert queue.started.count("bad") == queue.started.count("lucky") == most


def test_one_that_was_stopped_goes_on_however_often() -> None:
    assert worked(Planned("patient", [Outcome.STOPPED] * 50)).failed == {}


def test_failures_and_losses_are_counted_apart() -> None:
    assert worked(Planned("unlucky", [Outcome.LOST, Outcome.FAILED, Outcome.LOST])).failed == {}


def test_one_that_is_tried_again_comes_before_those_that_wait() -> None:
    assert worked(Planned("a", [Outcome.FAILED]), *(Planned(name, []) for name in "bcd")).started == list("abacd")


def test_a_reason_is_that_of_the_last_end() -> None:
    queue = worked(Planned("a", [Outcome.FAILED, Outcome.FAILED]), Planned("b", [Outcome.TAKEN]))
    assert queue.failed["a"] == "a 0"
    assert queue.failed["b"].startswith("another process is at work in TAKEN")


def test_a_folder_that_is_taken_before_the_end_is_a_failure() -> None:
    def done() -> None:
        raise AtWork(Path("run"))

    assert "another process is at work in run" in worked(Planned("a", [], done)).failed["a"]


def test_it_stops_when_it_is_told_to_and_even_when_something_breaks() -> None:
    queue = Scripted([Planned("a", [Outcome.STOPPED] * 1000)])
    looks: list[int] = []
    queue.work(stop=lambda: len(looks) == 3, look=lambda: looks.append(1), pause=0.0)
    assert queue.halted
    assert not queue.running
    broken = Scripted([Planned("a", [])])
    with pytest.raises(ZeroDivisionError):
        broken.work(stop=lambda: bool(1 / 0), look=lambda: None)
    assert broken.halted

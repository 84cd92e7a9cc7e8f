"""A queue of items that run several at a time, in order; those that fail are retried.

It knows neither what they do nor where: queue_local.py runs them on this machine, queue_ray.py on a Ray cluster.
"""

import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Generic, NamedTuple, Protocol, TypeVar

from geonpg.scripts.common.locks import AtWork

LOCK_SECONDS = 30.0  # to wait for a folder: the last children of a killed queue need less to save
POLL_SECONDS = 0.1


class Item(Protocol):
    """Something to run. After an interruption it is started again, and must resume by itself."""

    @property
    def name(self) -> str:
        """A name that no other item has."""

    @property
    def done(self) -> Callable[[], None]:
        """Called after the item has succeeded."""


class Outcome(Enum):
    """How an item ended."""

    DONE = auto()
    STOPPED = auto()  # it was asked to, and has saved its state: that is no failure
    FAILED = auto()
    LOST = auto()  # with the machine that it ran on
    TAKEN = auto()  # another process is at work in its folder


# How often an item may end so before it has failed for good. One that was lost has done no wrong, but a cluster that
# loses all of them must end.
ATTEMPTS = {Outcome.FAILED: 2, Outcome.LOST: 20, Outcome.TAKEN: 1}


class Ended(NamedTuple):
    """How an item ended, and the reason if it did not succeed."""

    outcome: Outcome
    reason: str = ""


Queued = TypeVar("Queued", bound=Item)
Started = TypeVar("Started")


class Queue(ABC, Generic[Queued, Started]):
    """Items that are waiting, running or failed; a failed one does not keep the others from running.

    Subclasses, the engines, start items, poll them and halt them.
    """

    def __init__(self, items: Iterable[Queued]) -> None:
        self.waiting = deque(items)
        self.running: dict[str, tuple[Queued, Started]] = {}
        self.failed: dict[str, str] = {}
        self._ends: Counter[tuple[str, Outcome]] = Counter()

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many items run at a time; it may change."""

    @abstractmethod
    def start(self, item: Queued) -> Started:
        """Start an item; raise AtWork if another process is at work in its folder."""

    @abstractmethod
    def poll(self, item: Queued, started: Started) -> Ended | None:
        """Look after a running item; return how it ended, or None if it has not."""

    @abstractmethod
    def halt(self) -> None:
        """Stop all running items without losing what they have done."""

    @property
    def is_busy(self) -> bool:
        """Whether any item is waiting or running."""
        return bool(self.waiting or self.running)

    def advance(self) -> None:
        """Poll the running items, and start as many others as there is room for."""
        for item, started in list(self.running.values()):
            ended = self.poll(item, started)
            if ended is not None:
                del self.running[item.name]
                self._conclude(item, ended)
        while self.waiting and len(self.running) < self.slots:
            item = self.waiting.popleft()
            try:
                self.running[item.name] = item, self.start(item)
            except AtWork as error:
                self._conclude(item, Ended(Outcome.TAKEN, str(error)))

    def _conclude(self, item: Queued, ended: Ended) -> None:
        if ended.outcome is Outcome.DONE:
            try:
                item.done()
            except AtWork as error:
                self.failed[item.name] = str(error)
            return
        self._ends[item.name, ended.outcome] += 1
        if ended.outcome is Outcome.STOPPED or self._ends[item.name, ended.outcome] < ATTEMPTS[ended.outcome]:
            self.waiting.appendleft(item)
        else:
            self.failed[item.name] = ended.reason

    def work(self, stop: Callable[[], bool], look: Callable[[], None], pause: float = POLL_SECONDS) -> None:
        """Work until nothing is left or `stop()` is true; `look` is called after every round."""
        try:
            while self.is_busy and not stop():
                self.advance()
                look()
                time.sleep(pause)
        finally:
            self.halt()
            self.running.clear()

"""A queue of items that run so many at a time, in their order; those that fail are tried again.

It does not know what they do, nor where: queue_local.py starts them on this machine, queue_ray.py on a Ray cluster.
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
    """Something to be done. It is started anew if it was interrupted, and must go on by itself then."""

    @property
    def name(self) -> str:
        """What tells it from the others."""

    @property
    def done(self) -> Callable[[], None]:
        """What follows its success."""


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
    """How an item ended, and why if that was not well."""

    outcome: Outcome
    reason: str = ""


Queued = TypeVar("Queued", bound=Item)
Started = TypeVar("Started")


class Queue(ABC, Generic[Queued, Started]):
    """Items that wait, run, and have failed, by name; the others go on without those.

    A subclass, the engine, says how an item is started, how one looks whether it has ended, and how all are stopped.
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
        """Start an item; AtWork if another process is at work on it."""

    @abstractmethod
    def poll(self, item: Queued, started: Started) -> Ended | None:
        """Look after an item that runs; how it ended, if it has."""

    @abstractmethod
    def halt(self) -> None:
        """Stop all that run, without losing what they have done."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.waiting or self.running)

    def advance(self) -> None:
        """Look after those that run, and start as many as there is room for."""
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
        """Work until nothing is left to do, or until `stop()`; `look` is called now and then."""
        try:
            while self.is_busy and not stop():
                self.advance()
                look()
                time.sleep(pause)
        finally:
            self.halt()
            self.running.clear()

"""The engine of a queue on this machine: every item is a command in a child process."""

import math
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from geonpg.scripts.jobs.child import Child
from geonpg.scripts.jobs.queue import Ended, Outcome, Queue

# How a command ends that was asked to stop and has saved.
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


@dataclass(frozen=True)
class LocalItem:
    """A command to run.

    command: called at every start, because an interrupted command is resumed by another one.
    done: called after success.
    limit: seconds without a sign of life after which a command hangs, and is killed.
    sign: a file whose every change is a sign of life; without one only the start is.
    """

    name: str
    command: Callable[[], Sequence[str]]
    done: Callable[[], None]
    limit: float = math.inf
    sign: Path | None = None

    def quiet_seconds(self, started: Child) -> float:
        """Return the seconds since the last sign of life."""
        try:
            since_change = math.inf if self.sign is None else time.time() - self.sign.stat().st_mtime
        except OSError:  # it is not there yet
            since_change = math.inf
        return min(started.seconds, since_change)


class LocalQueue(Queue[LocalItem, Child]):
    """A queue on this machine, `slots` items at a time.

    lock: a descriptor that children share; they end when this process does, and until then the lock is held.
    """

    def __init__(self, items: Iterable[LocalItem], slots: int, lock: int | None = None) -> None:
        super().__init__(items)
        self._slots, self._inherited = slots, () if lock is None else (lock,)

    @property
    def slots(self) -> int:
        return self._slots

    def start(self, item: LocalItem) -> Child:
        return Child(item.command(), self._inherited)

    def poll(self, item: LocalItem, started: Child) -> Ended | None:
        code = started.process.poll()
        if code is None and item.quiet_seconds(started) <= item.limit:
            return None
        if code is None:
            started.process.kill()
            started.process.wait()
            started.close()
            return Ended(Outcome.FAILED, f"killed, because nothing was heard of it for {item.limit / 60:.0f} minutes")
        outcome = Outcome.DONE if code == 0 else Outcome.STOPPED if code in STOPPED else Outcome.FAILED
        ended = Ended(outcome, started.last_words())
        started.close()
        return ended

    def halt(self) -> None:
        """Ask the children to stop, and wait until they have saved their state."""
        for _, child in self.running.values():
            child.process.terminate()
        for _, child in self.running.values():
            child.process.wait()
            child.close()

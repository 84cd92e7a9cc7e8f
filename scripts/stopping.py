"""How a long job is asked to stop: it finishes what it is at, saves, and ends."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

AFTER_UPDATE = "stopping after this update; Ctrl-C again stops at once, without saving"
STDERR = 2


class Signals:
    """The first SIGINT or SIGTERM asks the job to stop after its update; another one ends it at once.

    words: what the first one is answered with, at once, on standard error.
    """

    def __init__(self, words: str = "") -> None:
        self.words, self.received = words, 0

    def receive(self, number: int, frame: FrameType | None) -> None:
        if self.words and not self.received:
            with suppress(OSError):  # not by `print`, which this may have interrupted: it cannot be entered twice
                os.write(STDERR, f"\n{self.words}\n".encode())
        self.received = number
        signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        return self.received > 0


@contextmanager
def listening(words: str = "") -> Iterator[Signals]:
    """Inside, signals are heard; afterwards they mean what they meant before."""
    signals = Signals(words)
    before = {number: signal.signal(number, signals.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

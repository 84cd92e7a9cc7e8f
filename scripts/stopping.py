"""How a long job is asked to stop: it finishes what it is at, saves, and ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Signals:
    """The first SIGINT or SIGTERM asks the job to stop after its update; another one ends it at once."""

    def __init__(self) -> None:
        self.received = 0

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        signal.signal(number, signal.SIG_DFL)

    def __call__(self) -> bool:
        return self.received > 0


@contextmanager
def listening() -> Iterator[Signals]:
    """Inside, signals are heard; afterwards they mean what they meant before."""
    signals = Signals()
    before = {number: signal.signal(number, signals.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Work that is done beside what follows it, in a thread of its own, and is finished when somebody needs it."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

T = TypeVar("T")


class Beside(Generic[T]):
    """At most one piece of work that was left for later.

    It is done when `finish` is called, or beside what follows from a call of `start` on. Nobody else may touch what it
    works on in between.
    """

    def __init__(self) -> None:
        self._work: Callable[[], T] | None = None
        self._running: Future[T] | None = None
        self._thread: ThreadPoolExecutor | None = None

    def leave(self, work: Callable[[], T]) -> None:
        """Leave some work for later; what was left before must be finished."""
        assert self._work is None
        self._work = work

    def start(self, busy: NDArray[np.int64]) -> None:
        """Begin with the work that was left, if any, in another thread; `busy` [1] is one as long as it takes."""
        work = self._work

        def run() -> T:
            assert work is not None
            try:
                return work()
            finally:
                busy.fill(0)

        if work is not None and self._running is None:
            busy.fill(1)
            if self._thread is None:
                # each thread of Python's has its own number of torch's; one more beside a rollout is enough
                self._thread = ThreadPoolExecutor(1, "beside", initializer=torch.set_num_threads, initargs=(1,))
            self._running = self._thread.submit(run)

    def finish(self) -> T | None:
        """Finish the work that was left and return its result; None if nothing was left."""
        work, running = self._work, self._running
        if work is None:
            return None
        try:
            return work() if running is None else running.result()
        finally:
            if running is None or running.done():  # or a signal has ended the waiting, not the work
                self._work = self._running = None

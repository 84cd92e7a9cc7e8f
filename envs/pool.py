"""A few threads that run one job per environment, again and again."""

import threading
from collections.abc import Callable, Iterator, Sequence

Job = Callable[[], object]


class StepError(RuntimeError):
    """A job failed; says which."""


class Pool:
    """Runs every job once per call of `run`, shared out over `threads` threads, the caller's among them.

    The jobs release the interpreter lock (mj_step does), so plain threads run them side by side. They are
    taken one by one from a shared iterator: a thread that is held up leaves the rest to the others.
    """

    def __init__(self, jobs: Sequence[Job], threads: int) -> None:
        self._jobs = list(jobs)
        self._errors: list[tuple[int, Exception]] = []
        self._next: Iterator[tuple[int, Job]] = iter(())
        self._closing = False
        self._go = [threading.Lock() for _ in range(min(threads, len(jobs)) - 1)]
        self._done = [threading.Lock() for _ in self._go]
        for lock in (*self._go, *self._done):
            lock.acquire()
        for go, done in zip(self._go, self._done, strict=True):
            threading.Thread(target=self._serve, args=(go, done), daemon=True).start()

    def _serve(self, go: threading.Lock, done: threading.Lock) -> None:
        while True:
            go.acquire()
            if self._closing:
                return
            self._work(self._next)
            done.release()

    def _work(self, jobs: Iterator[tuple[int, Job]]) -> None:
        index = -1
        try:
            for index, job in jobs:
                job()
        except Exception as error:
            self._errors.append((index, error))

    def run(self) -> None:
        jobs = self._next = enumerate(self._jobs)
        for lock in self._go:
            lock.release()
        self._work(jobs)
        for lock in self._done:
            lock.acquire()
        if self._errors:
            index, error = self._errors[0]
            self._errors = []
            raise StepError(f"environment {index} failed while stepping: {error}") from error

    def close(self) -> None:
        self._closing = True
        for lock in self._go:
            lock.release()
        self._go = []

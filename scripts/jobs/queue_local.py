"""Runs commands on this machine, so many at a time, in order. It does not know what they do."""

import os
import signal
import subprocess
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO

ATTEMPTS = 2
LOCK_SECONDS = 30.0  # the last children of a killed runner need less to save
# How a command ends that was asked to stop and has saved: that is no failure.
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


@dataclass(frozen=True)
class Task:
    """A command, asked for at every start, because one that was interrupted goes on; `done` follows its success."""

    name: str
    command: Callable[[], Sequence[str]]
    done: Callable[[], None]


@dataclass(frozen=True)
class Child:
    task: Task
    process: "subprocess.Popen[bytes]"
    errors: IO[bytes]

    def last_words(self) -> str:
        """The last line of its standard error, or how it ended."""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").split("\n")
        spoken = [line.strip() for line in lines if line.strip()]
        code = self.process.returncode
        return spoken[-1] if spoken else f"killed by signal {-code}" if code < 0 else f"exit code {code}"


class Runner:
    """Tasks that wait, run, and have failed. A failed one is tried again once; then the others go on without it.

    Children end when this process does (see worker.py), and until then share `lock` with it.
    """

    def __init__(self, tasks: Iterable[Task], slots: int, lock: int | None = None) -> None:
        self.waiting, self.slots = deque(tasks), slots
        self.inherited = () if lock is None else (lock,)
        self.running: dict[str, Child] = {}
        self.failures: Counter[str] = Counter()
        self.failed: dict[str, str] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting or self.running)

    def advance(self) -> None:
        """Look after those that have ended, and start as many as there is room for."""
        for child in [child for child in self.running.values() if child.process.poll() is not None]:
            self._end(child)
        while self.waiting and len(self.running) < self.slots:
            self._start(self.waiting.popleft())

    def _start(self, task: Task) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the child has ended
        process = subprocess.Popen(
            task.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=self.inherited,
            env={**os.environ, "TQDM_DISABLE": "1"},  # nobody looks at its progress bar
        )
        self.running[task.name] = Child(task, process, errors)

    def _end(self, child: Child) -> None:
        task = child.task
        del self.running[task.name]
        if child.process.returncode == 0:
            task.done()
        elif child.process.returncode in STOPPED:
            self.waiting.appendleft(task)
        else:
            self.failures[task.name] += 1
            if self.failures[task.name] < ATTEMPTS:
                self.waiting.appendleft(task)
            else:
                self.failed[task.name] = child.last_words()
        release(child)

    def stop(self) -> None:
        """Ask those that run to stop, and wait until they have saved."""
        for child in self.running.values():
            child.process.terminate()
        for child in self.running.values():
            child.process.wait()
            release(child)
        self.running.clear()


def release(child: Child) -> None:
    assert child.process.stdin is not None
    child.process.stdin.close()
    child.errors.close()

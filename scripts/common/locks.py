"""One process at a time in a folder: a lock that the system releases when its process ends, however it ends."""

import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from geonpg.errors import Refused

T = TypeVar("T")


class AtWork(Refused):
    """Another process holds the lock of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"another process is at work in {folder}: wait until it has ended, or choose another folder")


@contextmanager
def locked(folder: Path, seconds: float = 0.0) -> Iterator[int | None]:
    """Hold the folder's lock, after waiting for it up to `seconds`; raise AtWork if another process keeps it.

    Yields the lock's descriptor, which a child process may share: then the folder is free when both have ended. Yields
    None if the folder does not exist.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        wait_for(descriptor, folder, seconds)
        yield descriptor
    finally:
        os.close(descriptor)


def wait_for(descriptor: int, folder: Path, seconds: float) -> None:
    """Take the lock within `seconds`; raise AtWork if another process keeps it longer."""
    deadline = time.monotonic() + seconds
    if seconds and not taken(descriptor, folder):
        print(f"waiting for what is still at work in {folder}", file=sys.stderr, flush=True)
    while not taken(descriptor, folder):
        if time.monotonic() >= deadline:
            raise AtWork(folder)
        time.sleep(0.1)


def taken(descriptor: int, folder: Path) -> bool:
    """Try to take the lock and return whether this process has it; it may already have had it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # some network disks lock no folders
        logging.warning("%s cannot be locked (%s): let no other process work there", folder, error.strerror)
    return True


@contextmanager
def alone(folder: Path, prepare: Callable[[], T], holds: bool = True) -> Iterator[T]:
    """Hold the lock of a folder, old or new, and yield what `prepare` makes of it.

    holds: False in a process that works there together with the one that holds the lock; it takes none.
    """
    if not holds:
        yield prepare()
        return
    with locked(folder) as lock:
        prepared = prepare()
        with locked(folder) if lock is None else nullcontext():
            yield prepared

"""Semaphores of the system, on which compiled code waits without the interpreter."""

import ctypes
import sys
from functools import cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from .library import address_of

SIZE = 8  # words, more than sem_t has on any system
FOREVER, NOW = -1, 0  # for macOS, whose functions take how long to wait


@cache
def system() -> ctypes.CDLL:
    """Return the C library."""
    return ctypes.CDLL(None)


def named(linux: str, mac: str) -> "ctypes._NamedFuncPointer":
    """Return the function of the C library that has these names."""
    return cast("ctypes._NamedFuncPointer", getattr(system(), mac if sys.platform == "darwin" else linux))


def post() -> "ctypes._NamedFuncPointer":
    """Return the function that lets one waiter pass."""
    return named("sem_post", "dispatch_semaphore_signal")


def post_function() -> int:
    """Return the address of the function that lets one waiter pass."""
    return address_of(post())


def wait_function() -> int:
    """Return the address of the function that waits, `int (semaphore, FOREVER)`."""
    return address_of(named("sem_wait", "dispatch_semaphore_wait"))


def look_function() -> int:
    """Return the address of the function that passes or says that it cannot, `int (semaphore, NOW)`."""
    return address_of(named("sem_trywait", "dispatch_semaphore_wait"))


def give_way_function() -> int:
    """Return the address of the function that lets other threads run."""
    return address_of(system().sched_yield)


def nap_function() -> int:
    """Return the address of the function that sleeps for some microseconds."""
    return address_of(system().usleep)


class Semaphore:
    """A semaphore that nobody may pass yet."""

    def __init__(self) -> None:
        self._room: NDArray[np.int64] = np.zeros(SIZE, dtype=np.int64)
        if sys.platform == "darwin":
            create = system().dispatch_semaphore_create
            create.restype = ctypes.c_void_p
            self.address = int(create(ctypes.c_long(0)))
        else:
            self.address = int(self._room.ctypes.data)
            system().sem_init(ctypes.c_void_p(self.address), 0, 0)

    def post(self) -> None:
        """Let one waiter pass."""
        post()(ctypes.c_void_p(self.address))

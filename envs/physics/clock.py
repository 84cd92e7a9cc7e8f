"""MuJoCo's clock, which its Python package sets: with it every step looks at the time a dozen times.

That takes an eighth of a step, for statistics in `MjData.timer` that nobody reads here. No result depends on it.
"""

import ctypes
from threading import Lock
from types import TracebackType

from .library import mujoco_library


class StoppedClock:
    """A block in which MuJoCo keeps no time; whoever leaves such a block last lets the clock go on."""

    def __init__(self) -> None:
        self._clock = ctypes.c_void_p.in_dll(mujoco_library(), "mjcb_time")
        self._lock, self._inside = Lock(), 0
        self._kept: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._kept = self._clock.value
            self._inside += 1
            self._clock.value = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._clock.value = self._kept


without_clock = StoppedClock()

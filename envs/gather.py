"""Read and write one array of many MjData objects at once.

Every MjData keeps its arrays in memory of its own. Their addresses never change, so one index array
per field lets a single numpy call collect all environments: no Python per environment.
"""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Gather:
    """The same float64 arrays of several objects, seen as rows: [objects, entries].

    `rows[k]` lists the arrays of object k; they must be contiguous and stay where they are.
    """

    def __init__(self, rows: Sequence[Sequence[Array]]) -> None:
        arrays = [array for row in rows for array in row if array.size]
        for array in arrays:
            if array.dtype != np.float64 or not array.flags.c_contiguous or array.ctypes.data % 8:
                raise ValueError("only contiguous, aligned float64 arrays can be gathered")
        lowest = min(arrays, key=lambda array: array.ctypes.data)
        base = lowest.ctypes.data
        highest = max(array.ctypes.data + array.nbytes for array in arrays)
        # a view over everything between the lowest and the highest array; only our entries are touched
        self._memory = as_strided(lowest.reshape(-1), shape=((highest - base) // 8,), strides=(8,))
        self._index = np.stack([np.concatenate([self._entries(a, base) for a in row]) for row in rows])
        self._keep = arrays  # the memory must outlive us

    @staticmethod
    def _entries(array: Array, base: int) -> NDArray[np.intp]:
        return (array.ctypes.data - base) // 8 + np.arange(array.size, dtype=np.intp)

    def read(self, out: Array) -> None:
        """All rows into `out`."""
        self._memory.take(self._index, out=out, mode="clip")

    def read_rows(self, rows: NDArray[np.intp]) -> Array:
        return self._memory[self._index[rows]]

    def write(self, values: NDArray[np.floating]) -> None:
        self._memory[self._index] = values

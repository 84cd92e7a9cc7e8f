"""Addresses of the C functions that compiled code calls: MuJoCo's physics, and numpy's random numbers."""

import ctypes
import ctypes.util
from functools import cache
from pathlib import Path

import mujoco
import numpy as np


@cache
def mujoco_library() -> ctypes.CDLL:
    """Return MuJoCo's own shared library, which the Python package has loaded already."""
    folder = Path(mujoco.__file__).parent
    names = ("libmujoco.so*", "libmujoco*.dylib", "mujoco.dll")
    found = [path for pattern in names for path in sorted(folder.glob(pattern))]
    if not found:
        raise OSError(f"MuJoCo's shared library is not in {folder}")
    return ctypes.CDLL(str(found[0]))


def mujoco_function(name: str) -> int:
    """Return the address of one of MuJoCo's functions."""
    return address_of(getattr(mujoco_library(), name))


@cache
def normal_function() -> int:
    """Return the address of numpy's draw of a normal number, `double (bitgen_t *)`."""
    library = ctypes.CDLL(str(np.random._generator.__file__))
    return address_of(library.random_standard_normal)


@cache
def power_function() -> int:
    """Return the address of the C library's pow, which a compiler would replace by a product."""
    return address_of(ctypes.CDLL(ctypes.util.find_library("m") or ctypes.util.find_library("msvcrt")).pow)


@cache
def dot_is_fused() -> bool:
    """Return whether numpy's dot product of short vectors rounds once per term, as some processors' kernels do."""
    vectors = np.random.default_rng(0).normal(size=(1000, 3))
    squares = vectors * vectors
    plain = (squares[:, 0] + squares[:, 1]) + squares[:, 2]
    return any(float(vector @ vector) != total for vector, total in zip(vectors, plain, strict=True))


def address_of(function: "ctypes._NamedFuncPointer") -> int:
    """Return the address of a C function."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address

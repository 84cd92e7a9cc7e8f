"""What a compiled function is made of: its code, and the numbers and compiled functions that it names.

Numba keeps compiled code under a function's name and looks at its own file only, so that a number or a helper that is
imported from another file would stay as it was. Here the name changes with all of them.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

Compiled = Callable[..., Any]

MARK = "#"  # between the name of a function and what it is made of


def codes(code: CodeType) -> Iterator[CodeType]:
    """Return a function's code, and that of the functions inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def named(python: Compiled) -> dict[str, object]:
    """Return the globals that a function names, those in modules by their last name."""
    names = [name for code in codes(python.__code__) for name in code.co_names]
    found = {name: python.__globals__[name] for name in names if name in python.__globals__}
    modules = [value for value in found.values() if isinstance(value, ModuleType)]
    for module in modules:  # which grows by those inside of modules
        inside = {name: getattr(module, name) for name in names if hasattr(module, name)}
        found |= {f"{module.__name__}.{name}": value for name, value in inside.items()}
        modules += [value for value in inside.values() if isinstance(value, ModuleType) and value not in modules]
    return found


def fingerprint(python: Compiled, inside: tuple[Compiled, ...] = ()) -> str:
    """Return letters that change with a function's code and with what it names; `inside` are those that name it."""
    parts: list[object] = []
    for code in codes(python.__code__):
        parts += [code.co_code, code.co_names, [each for each in code.co_consts if not isinstance(each, CodeType)]]
    for name, value in named(python).items():
        if isinstance(value, Dispatcher) and value.py_func not in (python, *inside):
            parts += [name, fingerprint(value.py_func, (python, *inside))]
        elif isinstance(value, np.ndarray):
            parts += [name, value.tobytes()]
        elif isinstance(value, int | float | str | tuple | np.generic):
            parts += [name, value]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def keeps(python: Compiled, mark: str = "") -> bool:
    """Return whether numba can keep a function's compiled form; if so, name it after all that it is made of."""
    if not Path(python.__code__.co_filename).exists():  # typed in, and gone with this process
        return False
    python.__qualname__ = f"{python.__qualname__.partition(MARK)[0]}{MARK}{mark}{fingerprint(python)}"
    return True


def kept(compiler: Compiled, python: Compiled, *how: object, mark: str = "", **options: object) -> Any:
    """Compile a function and keep the result on the disk, where there is a place for it.

    compiler: numba's, such as `numba.njit`; `how` and `options` are its own.
    """
    try:
        return compiler(*how, cache=keeps(python, mark), **options)(python)
    except RuntimeError:  # no folder can be written to
        return compiler(*how, **options)(python)


def checked(python: Compiled, made: dict[Compiled, object] | None = None) -> Compiled:
    """Copy a function such that it names helpers which check the bounds of arrays.

    made: helpers of that kind, by the functions that they are copies of.
    """
    made, scope = {} if made is None else made, dict(python.__globals__)
    copy = FunctionType(python.__code__, scope, python.__name__, python.__defaults__, python.__closure__)
    copy.__qualname__ = python.__qualname__
    made[python] = kept(numba.njit, copy, mark="checked", error_model="numpy", boundscheck=True)
    for name, value in named(python).items():
        if isinstance(value, Dispatcher):
            if value.py_func not in made:
                checked(value.py_func, made)
            scope[name] = made[value.py_func]
    return copy

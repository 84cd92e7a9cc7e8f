"""Random edits that change the form of a state, as another version or an edit by hand might."""

import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor

DEEPER = 0.8  # probability of looking inside a list or mapping
FREE = ("episodes", "successes", "cuda")  # lists of any length: a shorter one is the state of another run

REPLACEMENTS: Mapping[str, Callable[[Any], Any]] = {
    "None": lambda value: None,
    "text": str,
    "a flag": lambda value: not isinstance(value, bool) or "flag",
    "an integer": lambda value: 7 if type(value) is not int else 7.5,
    "a number": lambda value: 0.5 if type(value) is not float else 1,
    "a list": lambda value: [] if not isinstance(value, list) or value else {},
    "a mapping": lambda value: {} if not isinstance(value, dict) or value else [],
    "itself in a list": lambda value: [value],
    "itself under a name": lambda value: {"value": value},
}
ARRAY_REPLACEMENTS: Mapping[str, Callable[[Any], Any]] = {
    "single row": lambda array: array[None],
    "twice": lambda array: as_kind(array, np.concatenate([np.atleast_1d(as_numpy(array))] * 2)),
    "nothing": lambda array: as_kind(array, as_numpy(array).reshape(-1)[:0]),
    "half precision": lambda array: as_kind(array, as_numpy(array).astype(np.float16)),
    "complex numbers": lambda array: as_kind(array, as_numpy(array).astype(np.complex128)),
    "the other kind of array": lambda array: as_numpy(array) if isinstance(array, Tensor) else torch.from_numpy(array),
}


def as_numpy(array: Any) -> Any:
    """Return a tensor or an array as an array."""
    return array.numpy() if isinstance(array, Tensor) else array


def as_kind(like: Any, array: Any) -> Any:
    """Return an array as a tensor if `like` is one."""
    return torch.from_numpy(array) if isinstance(like, Tensor) else array


def edited(state: dict[str, Any], chance: random.Random) -> tuple[dict[str, Any], str]:
    """Return a copy of the state with one edit, and what it was."""
    new = deepcopy(state)
    holder, key, path = place_in(new, chance)
    name = ".".join(map(str, path))
    value = holder[key]
    kind = chance.choice(("remove", "rename", "add", "replace", "replace", "replace"))
    if path[-2:-1] and path[-2] in FREE:
        kind = "replace"
    if kind == "remove":
        del holder[key]
        return new, f"removes {name}"
    if kind == "rename" and isinstance(holder, dict):
        holder[f"{key}_"] = holder.pop(key)
        return new, f"renames {name}"
    if kind == "add":
        if isinstance(holder, dict):
            holder["more"] = value
        else:
            holder.append(value)
        return new, f"adds to what holds {name}"
    choices = ARRAY_REPLACEMENTS if isinstance(value, Tensor | np.ndarray) and chance.random() < 0.5 else REPLACEMENTS
    allowed = [choice for choice in choices if choice != "a list" or key not in FREE]
    what = chance.choice([choice for choice in allowed if kind_of(choices[choice](value)) != kind_of(value)])
    holder[key] = choices[what](value)
    return new, f"makes {name} {what}"


def kind_of(value: Any) -> tuple[Any, ...]:
    """Return what an edit must change: type, dtype, shape, length."""
    if isinstance(value, Tensor | np.ndarray):
        return type(value), value.dtype, tuple(value.shape)
    return type(value), len(value) if isinstance(value, list | dict) else 0


def place_in(state: dict[str, Any], chance: random.Random) -> tuple[Any, Any, list[Any]]:
    """Choose a place in a state: what holds it, its key there, and the keys that lead to it."""
    holder: Any = state
    path: list[Any] = []
    while True:
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        path.append(key)
        inner = holder[key]
        if isinstance(inner, tuple):  # nothing can be put into it
            inner = holder[key] = inner if chance.random() < 0.5 else list(inner)
        if not isinstance(inner, dict | list) or not inner or chance.random() > DEEPER:
            return holder, key, path
        holder = inner

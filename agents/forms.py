"""The form of a state: its keys, types, dtypes and shapes, whatever its numbers are.

A form is written as an example of it, in which `Maybe`, `Many` and so on stand for what may differ.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor, dtype


@dataclass(frozen=True)
class Maybe:
    """The form of None, or of what has this form."""

    form: object


@dataclass(frozen=True)
class Many:
    """The form of a list of any length, each entry of this form."""

    form: object


@dataclass(frozen=True)
class OneOf:
    """The form of what has one of these forms."""

    forms: tuple[object, ...]


@dataclass(frozen=True)
class Later:
    """The form of an entry of a mapping that states of an earlier version lack."""

    form: object


@dataclass(frozen=True)
class Anything:
    """The form of anything at all."""


@dataclass(frozen=True)
class AnyLength:
    """The form of a tensor of this dtype with one dimension."""

    dtype: dtype


def misfit(value: object, form: object, name: str = "it") -> str:
    """Say what is wrong with the first part that is not of its form; the empty string if all are."""
    match form:
        case Anything():
            return ""
        case Later():
            return misfit(value, form.form, name)
        case Maybe():
            return "" if value is None else misfit(value, form.form, name)
        case OneOf():
            found = [misfit(value, each, name) for each in form.forms]
            return "" if "" in found else found[-1]
        case Many():
            entries = enumerate(value) if type(value) is list else ()
            wrong = "" if type(value) is list else f"{name} is {described(value)}, not a list"
            return wrong or first(misfit(entry, form.form, f"{name}.{i}") for i, entry in entries)
        case AnyLength():
            alike = isinstance(value, Tensor) and (value.ndim, value.dtype) == (1, form.dtype)
            return "" if alike else f"{name} is {described(value)}, not a row of {form.dtype}"
    if described(value) != described(form):
        return f"{name} is {described(value)}, not {described(form)}"
    if isinstance(form, Mapping) and isinstance(value, Mapping):
        missing = [key for key, each in form.items() if key not in value and not isinstance(each, Later)]
        unknown = [key for key in value if key not in form]
        for what, keys in (("no entry", missing), ("an unknown entry", unknown)):
            if keys:
                return f"{name} has {what} {keys[0]!r}"
        return first(misfit(value[key], form[key], f"{name}.{key}") for key in form if key in value)
    if isinstance(form, list | tuple) and isinstance(value, list | tuple):
        return first(misfit(one, other, f"{name}.{i}") for i, (one, other) in enumerate(zip(value, form, strict=True)))
    return ""


def first(found: Iterable[str]) -> str:
    """The first of some words that is not empty, or the empty string."""
    return next((words for words in found if words), "")


def described(value: object) -> str:
    """Say what a part of a state is, apart from its numbers."""
    if isinstance(value, Tensor | np.ndarray):
        kind = "a tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} of {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__

"""Look a name up in a table; a misspelt one dies with the legal ones listed."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def choose(kind: str, name: str, table: Mapping[str, T]) -> T:
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}: choose one of {', '.join(table)}")
    return table[name]


def require(condition: bool, message: str) -> None:
    """A wrong value dies here, in one sentence that says which values are legal."""
    if not condition:
        raise ValueError(message)

"""Rejected inputs: one exception for everything that the caller can mend, and the checks that raise it."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")


class Refused(ValueError):
    """An input that cannot be used; its message is one sentence that names the legal values.

    Commands print it and exit with code 2. Any other ValueError is a bug, and keeps its traceback.
    """


def require(condition: bool, message: str) -> None:
    """Raise Refused with this message unless the condition holds."""
    if not condition:
        raise Refused(message)


def known(kind: str, name: str, legal: Iterable[str], or_else: str = "") -> str:
    """Return the name if it is legal; otherwise raise Refused with the closest legal name and all of them.

    or_else: what else would be legal, appended to the list.
    """
    names = list(legal)
    if name not in names:
        closest = get_close_matches(str(name), names, n=1)
        hint = f" (did you mean {closest[0]}?)" if closest else ""
        raise Refused(f"unknown {kind} {name!r}{hint}: choose one of {', '.join(names)}{or_else}")
    return name


def choose(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Look a name up in a table; raise Refused with the legal names if it is not there."""
    return table[known(kind, name, table)]

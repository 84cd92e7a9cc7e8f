"""Command-line arguments: a parser that answers in one sentence, and the kinds of numbers that commands take."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from typing import NoReturn

from geonpg.configs.schema import LARGEST_SEED, parse_int
from geonpg.scripts.common.stopping import unread_streams


class Parser(ArgumentParser):
    """An argument parser that answers a wrong argument with one sentence and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Print the message, without the usage that argparse would add, and exit with code 2."""
        pass_on_unread()
        self.exit(2, f"{self.prog}: {message}\n")


def pass_on_unread() -> None:
    """Raise the BrokenPipeError at hand again if it says that nobody reads our output: no reason to refuse anything."""
    error = sys.exception()
    if isinstance(error, BrokenPipeError) and unread_streams():
        raise error


def refuse(program: str, reason: object, frames: str = "") -> int:
    """Print why a command cannot do what it was asked for, and return its exit code, 2.

    frames: where in an environment's own code that was found, as a traceback shows it.
    """
    pass_on_unread()
    print(f"{frames}{program}: {reason}", file=sys.stderr)
    return 2


def count(text: str) -> int:
    """Read a whole number for argparse: 200000, 200_000 or 2e5."""
    try:
        return parse_int(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a whole number, such as 200000 or 2e5, not {text!r}") from None


def up_to(high: int, low: int = 1) -> Callable[[str], int]:
    """Make a type for argparse: whole numbers up to `high`, above which no machine and no patience would do."""

    def bounded(text: str) -> int:
        if not low <= count(text) <= high:
            raise ArgumentTypeError(f"must be from {low} to {high:,}, not {text}")
        return count(text)

    return bounded


seed = up_to(LARGEST_SEED, low=0)
MOST_EPISODES = 10_000  # in one evaluation, where each has an environment of its own

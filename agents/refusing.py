"""Which action spaces an agent takes; what SB3 asserts of them, refused in our own words."""

from collections.abc import Iterator
from contextlib import contextmanager

from gymnasium import spaces

from geonpg.errors import Refused

ACTION_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@contextmanager
def refusing_spaces() -> Iterator[None]:
    """Raise Refused where SB3 asserts that it takes an action space."""
    try:
        yield
    except AssertionError as error:
        raise Refused(str(error)) from error

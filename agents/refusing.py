"""What SB3 asserts, refused in our own words."""

from collections.abc import Iterator
from contextlib import contextmanager

from geonpg.errors import Refused


@contextmanager
def refusing_spaces() -> Iterator[None]:
    """Raise Refused where SB3 asserts that it takes an action space."""
    try:
        yield
    except AssertionError as error:
        raise Refused(str(error)) from error

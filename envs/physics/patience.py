"""Tell the user what takes a while."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

log = logging.getLogger(__name__)

SECONDS = 1.0  # what takes longer than this is told; to load what was compiled before takes a tenth of that


@contextmanager
def told() -> Iterator[None]:
    """Say that simulations are being compiled, if what happens inside takes long."""
    words = "compiling the simulations for this machine, once; it takes some ten seconds"
    timer = Timer(SECONDS, log.warning, (words,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

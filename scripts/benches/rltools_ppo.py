"""RLtools' PPO as a contestant of `geonpg bench train`."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryDirectory

from geonpg.scripts.benches.contest import Contestant
from geonpg.scripts.races.rltools_process import INSTALL, NotStarted, RLtools

UPDATES = 2  # per segment, of 4096 steps each


def start_all(env_ids: Sequence[str], stack: ExitStack) -> dict[str, Contestant]:
    """Start RLtools for every id; where it does not start, say why in a line and return nobody."""
    folder = stack.enter_context(TemporaryDirectory())
    found: dict[str, Contestant] = {}
    for env_id in env_ids:
        try:
            rltools = RLtools(env_id, folder)
            stack.callback(rltools.close)
            rltools.begin()
        except (NotStarted, OSError) as error:
            print(f"RLtools is left out: {error} ({INSTALL})", file=sys.stderr)
            return {}
        found[env_id] = contestant(rltools)
    return found


def contestant(rltools: RLtools) -> Contestant:
    """What the contest asks of it."""
    return Contestant(lambda: None, partial(rltools.train, UPDATES), lambda: rltools.cpu)

"""Reading an optimiser's saved state: refuse what is not one, move random numbers to another device."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Generator, Tensor

from geonpg.errors import require


def require_keys(kind: str, state: Any, keys: Iterable[str]) -> None:
    """Raise Refused for a state that another kind of optimiser saved."""
    lacking = [key for key in keys if not isinstance(state, Mapping) or key not in state]
    require(not lacking, f"this is no state of {kind}: it lacks {', '.join(lacking)}")


def restore_generator(generator: Generator, saved: Tensor) -> None:
    """Continue with the random numbers of a saved generator.

    A generator of another kind of device (a GPU's state has 16 bytes, a CPU's 5056) cannot draw the same ones. It is
    seeded with a digest of the saved state: going on from one file gives the same draws every time, but not those
    that the other device would have drawn.
    """
    saved = saved.cpu()
    if saved.numel() == generator.get_state().numel():
        generator.set_state(saved)
    else:
        digest = hashlib.sha256(saved.numpy().tobytes()).digest()
        generator.manual_seed(int.from_bytes(digest[:8], "little") >> 1)  # seeds have 63 bits

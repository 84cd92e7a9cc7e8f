"""An optimiser's saved state: what it holds, what is not one, and how it moves to another device."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils._pytree import tree_map

from geonpg.errors import require

from .fisher import FactorMemory, KroneckerFisher
from .point import FlowMemory
from .signal import Signal


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


def remembered(memory: FlowMemory) -> dict[str, Any]:
    """Write down what earlier updates left behind."""
    return {
        "gradient": memory.gradient,
        "seen": memory.seen,
        "statistics": memory.factors.statistics,
        "inverses": memory.factors.inverses,
        "factors_seen": memory.factors.seen,
        "factors_damping": memory.factors.damping,
        "direction": memory.direction,
        "signal": [memory.signal.log_share, memory.signal.power, memory.signal.weight],
    }


def memory_of(state: Mapping[str, Any], like: Tensor) -> FlowMemory:
    """Read what earlier updates left behind: in the dtype of `like`, statistics in their own, all on its device."""
    statistics = moved(state["statistics"], like.device, None)
    inverses, gradient, direction = (
        moved(state[name], like.device, like.dtype) for name in ("inverses", "gradient", "direction")
    )
    factors = FactorMemory(statistics, inverses, state["factors_seen"], state["factors_damping"])
    return FlowMemory(gradient, state["seen"], factors, direction, Signal(*state["signal"]))


def moved(kept: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    """Move every tensor to a device, in another dtype unless that is None."""
    return tree_map(lambda x: x.to(device, dtype) if isinstance(x, Tensor) else x, kept)


def check_fits(state: Mapping[str, Any], size: int, fisher: KroneckerFisher) -> None:
    """Raise Refused for the state of another module."""
    gradient, statistics, blocks = state["gradient"], state["statistics"], fisher.blocks
    fisher.adopt_diagonals(statistics)
    fits = (gradient is None or gradient.numel() == size) and len(statistics) in (0, len(blocks))
    ours = f"ours has {size} parameters in {len(blocks)} blocks"
    require(fits, f"this optimiser state belongs to another module: {ours}")
    alike = not statistics or shapes_of(statistics) == [block.shapes for block in blocks]
    require(alike, "this optimiser state has factors of other shapes than ours: was its max_factor another?")
    inverses = state["inverses"]
    alike = not inverses or shapes_of(inverses) == [block.inverse_shapes for block in blocks]
    require(alike, "this optimiser state has other inverses than ours: was its factored_damping another?")


def shapes_of(tensors: Iterable[Iterable[Tensor]]) -> list[list[tuple[int, ...]]]:
    """Return the shapes of every block's tensors."""
    return [[tuple(x.shape) for x in each] for each in tensors]

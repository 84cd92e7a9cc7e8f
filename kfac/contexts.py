"""Blocks of code in which the module runs under other conditions: its precision, its buffers, its dropout."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode


def autocast_now(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context that restores the present automatic mixed precision inside a block that switched it off."""
    kind = device.type
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        return nullcontext()
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind))


def is_autocast(device: torch.device) -> bool:
    """Whether automatic mixed precision is on."""
    return not isinstance(autocast_now(device), nullcontext)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context that computes in the parameters' own precision."""
    return torch.autocast(device.type, enabled=False) if is_autocast(device) else nullcontext()


@contextmanager
def restoring_buffers(module: nn.Module) -> Iterator[None]:
    """Restore the module's buffers (batch statistics, say) at the end of the block.

    Only buffers that were changed are written to: a constant may be an expanded tensor, which cannot be written to.
    """
    kept = [
        (owner._buffers, name, buffer, buffer.clone())
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None and buffer.layout is torch.strided
    ]
    try:
        yield
    finally:
        for buffers, name, buffer, value in kept:
            if not torch.equal(buffer, value):
                buffer.copy_(value)
            buffers[name] = buffer


class WithoutDropout(TorchFunctionMode):
    """A block in which dropout passes its input on unchanged.

    Dropout is noise in the gradient, not part of the model whose geometry is measured. Nor could it be: forward and
    reverse mode draw different masks from the same seed.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout):
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs, "dropout_p": 0.0}
            return func(**kwargs)
        return func(*args, **kwargs)

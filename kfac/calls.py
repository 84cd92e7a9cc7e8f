"""Watches a closure call its module: with which arguments, in which precision, and whether the loss depends on it."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map


@dataclass(frozen=True)
class Call:
    """The arguments of one call of the module: a batch, or a part of one."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def to(self, dtype: torch.dtype) -> "Call":
        """The same call with its floating-point tensors in another precision."""

        def cast(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        return Call(*tree_map(cast, (self.args, self.kwargs)))


@dataclass
class Watched:
    """One call, and the values of the watched layers in it.

    No values if the closure wrote into what the call returned: the last ones are not the network's any more.
    """

    call: Call
    values: list[Tensor] = field(default_factory=list)
    version: int = 0  # of the last value, when it was new
    reached: bool = False  # by a gradient of the loss

    def reach(self, _: Tensor) -> None:
        self.reached = True

    def note(self, output: Tensor) -> None:
        self.values.append(output.detach())
        self.version = output._version


def autocast_now(device: torch.device) -> AbstractContextManager[Any]:
    """What restores today's automatic mixed precision inside a block that switched it off."""
    kind = device.type
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        return nullcontext()
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind))


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A block in the parameters' own precision."""
    now = autocast_now(device)
    return now if isinstance(now, nullcontext) else torch.autocast(device.type, enabled=False)


@contextmanager
def watching(module: nn.Module, layers: Iterable[nn.Module], like: Tensor) -> Iterator[list[Watched]]:
    """Inside, calls of the module are noted; afterwards no hook remains.

    What is left in the end are the calls that the loss depends on, or all of them if its gradient was found by other
    means than a backward pass. Arguments of a call under autocast are kept in the precision of `like`, a parameter.
    """
    seen, inside = list[Watched](), 0

    def begin(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal inside
        inside += 1
        if inside == 1:
            mixed = not isinstance(autocast_now(like.device), nullcontext)
            seen.append(Watched(Call(args, kwargs).to(like.dtype) if mixed else Call(args, kwargs)))

    def note_value(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if inside and torch.is_grad_enabled():
            seen[-1].note(output)

    def end(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        nonlocal inside
        inside -= 1
        if inside == 0 and isinstance(output, Tensor) and output.requires_grad:
            handles.append(output.register_hook(seen[-1].reach))

    handles: list[Any] = [module.register_forward_pre_hook(begin, with_kwargs=True)]
    handles += [layer.register_forward_hook(note_value) for layer in layers]
    handles.append(module.register_forward_hook(end, always_call=True))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
    seen[:] = [watched for watched in seen if watched.reached] or seen
    for watched in seen:
        if watched.values and watched.values[-1]._version != watched.version:
            watched.values.clear()


@contextmanager
def restoring_buffers(module: nn.Module) -> Iterator[None]:
    """Inside, the module may be called anywhere; afterwards its buffers, as batch statistics, know nothing of it.

    Only what was changed is written: a constant may be expanded, and cannot be.
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

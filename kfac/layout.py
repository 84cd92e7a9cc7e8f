"""A module's trainable parameters as one flat vector, and back."""

from collections.abc import Iterable, Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from geonpg.errors import Refused, require


class Layout:
    """Where each trainable parameter of a module lies in the flat vector.

    The order is that of `module.named_parameters()`, so the weight and the bias of one layer are
    neighbours and a Kronecker block is one contiguous span.

    only: those of the module's trainable parameters that belong to the vector; all by default.
    """

    def __init__(self, module: nn.Module, only: Sequence[Tensor] | None = None) -> None:
        chosen = None if only is None else {id(p) for p in only}
        trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        named = [(name, p) for name, p in trainable if chosen is None or id(p) in chosen]
        if chosen is not None and len(named) < len(chosen):
            raise Refused("`parameters` must be trainable parameters of the module, and nothing else")
        if not named:
            raise Refused("the module has no trainable parameters")
        self.names = [name for name, _ in named]
        self.parameters: list[Tensor] = [p for _, p in named]
        self.shapes = [p.shape for p in self.parameters]
        self.sizes = [p.numel() for p in self.parameters]
        self.size = sum(self.sizes)
        starts = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        self.spans = {
            name: slice(start, start + size) for name, start, size in zip(self.names, starts, self.sizes, strict=True)
        }

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the flat vector."""
        return reduce(torch.promote_types, (p.dtype for p in self.parameters))

    def flatten(self, tensors: Iterable[Tensor]) -> Tensor:
        """Join one tensor per parameter to a vector [size]."""
        return torch.cat([t.reshape(-1) for t in tensors])

    def split(self, flat: Tensor) -> list[Tensor]:
        """Split a vector [size] into views of it, one per parameter, in the parameters' shapes."""
        parts = flat.split(self.sizes)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """Split a vector [size] into views of it, by the names of the parameters."""
        return dict(zip(self.names, self.split(flat), strict=True))

    def read(self) -> Tensor:
        """Copy the parameters' present values into a vector [size]."""
        return self.flatten([p.detach() for p in self.parameters])

    def gradient(self) -> Tensor:
        """Copy the parameters' `.grad` into a vector [size]; a parameter the loss does not touch has gradient zero."""
        grads: Sequence[Tensor] = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        for name, grad in zip(self.names, grads, strict=True):
            require(grad.layout is torch.strided, f"the gradient of {name} is sparse, and must be dense")
        return self.flatten(grads)

    def trained(self) -> Tensor | None:
        """Return a mask [size], zero where a parameter has been frozen since; None if all are trained."""
        if all(p.requires_grad for p in self.parameters):
            return None
        return self.flatten([torch.full_like(p, float(p.requires_grad)).detach() for p in self.parameters])

    @torch.no_grad()
    def write(self, flat: Tensor) -> None:
        """Set the parameters to the values in `flat`."""
        torch._foreach_copy_(self.parameters, self.split(flat))
        torch.clear_autocast_cache()  # where autocast keeps rounded copies of the values before

"""One batch that reached the network in several calls, as micro-batches do."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from geonpg.errors import require

from .linearisation import Linearisation, Signals


def joined(outputs: Sequence[Tensor]) -> Tensor:
    """Stack the cases of all calls: [cases, size]."""
    sizes = {z.shape[-1] for z in outputs}
    require(len(sizes) == 1, f"the closure calls the module with outputs of several sizes: {sorted(sizes)}")
    return torch.cat([z.reshape(-1, z.shape[-1]) for z in outputs])


class Several(Linearisation):
    """A network at one point on the cases of several calls together.

    Each call is differentiated by itself: nothing is assumed of how its arguments hold its cases.
    """

    def __init__(self, parts: Sequence[Linearisation]) -> None:
        self.parts, self.size = parts, parts[0].size
        self.vectorises = all(part.vectorises for part in parts)
        self.z = joined([part.z for part in parts])

    def _own(self, u: Tensor) -> list[tuple[Linearisation, Tensor]]:
        """Each part with its rows of u, in the shape of its outputs."""
        rows = u.split([part.cases for part in self.parts])
        return [(part, own.reshape(part.z.shape)) for part, own in zip(self.parts, rows, strict=True)]

    def _sum(self, pull: Callable[[Linearisation, Tensor], Tensor], u: Tensor) -> Tensor:
        return torch.stack([pull(part, own) for part, own in self._own(u)]).sum(0)

    def first(self, v: Tensor) -> Tensor:
        """Compute R = J v on each call."""
        return joined([part.first(v) for part in self.parts])

    def second(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute R and S on each call."""
        r, s = zip(*(part.second(v) for part in self.parts), strict=True)
        return joined(r), joined(s)

    def pullback(self, u: Tensor) -> Tensor:
        """Add up J^T u over the calls."""
        return self._sum(lambda part, own: part.pullback(own), u)

    def pullback_each(self, u: Tensor) -> Tensor:
        """Stack the rows of all calls."""
        return torch.cat([part.pullback_each(own) for part, own in self._own(u)])

    def pullback_derivative(self, u: Tensor, v: Tensor) -> Tensor:
        """Add up the derivative of J^T u over the calls."""
        return self._sum(lambda part, own: part.pullback_derivative(own, v), u)

    def signals(self, u: Tensor) -> Signals:
        """Stack the signals of all calls."""
        found: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for part, own in self._own(u):
            for name, pair in part.signals(own).items():
                found.setdefault(name, []).append(pair)
        return {name: merged(name, pairs) for name, pairs in found.items()}


def merged(name: str, calls: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Stack the inputs and the gradients of all calls of one layer."""
    inputs, gradients = zip(*calls, strict=True)
    same = len({a.shape[1:] for a in inputs}) == 1
    require(same, f"convolution {name!r} sees images of several sizes, K-FAC knows but one: use solver 'cg'")
    return torch.cat(inputs), torch.cat(gradients)

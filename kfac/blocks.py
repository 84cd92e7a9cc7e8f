"""The curvature of one group of parameters: a Kronecker product, the exact log-std block, a diagonal.

A block has no memory. It turns what a batch shows into statistics, statistics into an inverse, and
applies either; the statistics are averaged and kept by the caller.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geonpg.errors import Refused

from .factors import append_ones, condition_number, damped_inverse, factored_damping, kron_apply, second_moment

Statistics = tuple[Tensor, ...]


class Block(ABC):
    """One contiguous span of the flat parameter vector."""

    kind: str

    def __init__(self, names: Sequence[str], span: slice) -> None:
        self.names, self.span = list(names), span

    @property
    @abstractmethod
    def shapes(self) -> list[tuple[int, ...]]:
        """Of its statistics."""

    @property
    def inverse_shapes(self) -> list[tuple[int, ...]]:
        """Of what `invert` returns."""
        return self.shapes

    @abstractmethod
    def invert(self, statistics: Statistics, damping: float) -> Statistics | None:
        """What `solve` needs; None if the statistics cannot be inverted."""

    @abstractmethod
    def solve(self, inverse: Statistics, b: Tensor) -> Tensor:
        """(block + damping)^-1 b."""

    @abstractmethod
    def multiply(self, statistics: Statistics, v: Tensor) -> Tensor:
        """block v, undamped."""


class KroneckerBlock(Block):
    """A layer's weight and bias as one matrix [o, i + 1]: block = A (x) D."""

    def __init__(self, names: Sequence[str], span: slice, layer: nn.Module, max_factor: int) -> None:
        super().__init__(names, span)
        self.layer = layer
        weight = layer.get_parameter("weight")
        self.outputs, self.inputs = len(weight), weight[0].numel()
        self.has_bias = len(self.names) == 2
        self.diagonal_a = self.inputs + self.has_bias > max_factor
        self.diagonal_d = self.outputs > max_factor
        approximate = self.diagonal_a or self.diagonal_d
        self.kind = f"Kronecker, {type(layer).__name__}" + (", diagonal factor" if approximate else "")

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        a, d = self.inputs + self.has_bias, self.outputs
        return [(a,) if self.diagonal_a else (a, a), (d,) if self.diagonal_d else (d, d)]

    def observe_inputs(self, a: Tensor, cases: int) -> Tensor:
        """A = E[sum over positions of a a^T]."""
        rows = self._input_rows(a)
        return second_moment(append_ones(rows) if self.has_bias else rows, cases, self.diagonal_a)

    def observe_gradients(self, d: Tensor) -> Tensor:
        """D = mean over cases and positions of d d^T."""
        rows = self._gradient_rows(d)
        return second_moment(rows, len(rows), self.diagonal_d)

    def _input_rows(self, a: Tensor) -> Tensor:
        """What entered the layer, a row per case and position: [rows, i]."""
        return (patches(self.layer, a) if isinstance(self.layer, nn.Conv2d) else a).reshape(-1, self.inputs)

    def _gradient_rows(self, d: Tensor) -> Tensor:
        """The gradients at what left it: [rows, o]."""
        return (d.movedim(-3, -1) if isinstance(self.layer, nn.Conv2d) else d).reshape(-1, self.outputs)

    def explains(self, pulled: Tensor, a: Tensor, d: Tensor) -> bool:
        """Do the calls of the layer account for its whole gradient? Not if its weight is used without calling it."""
        inputs, gradients = self._input_rows(a), self._gradient_rows(d)
        seen = torch.cat([(gradients.mT @ inputs).reshape(-1), gradients.sum(0)])[: len(pulled)]
        scale = float((inputs.norm(dim=1).clamp(min=1.0) * gradients.norm(dim=1)).sum())
        return not float((pulled - seen).norm()) > torch.finfo(pulled.dtype).eps ** 0.5 * scale

    def invert(self, statistics: Statistics, damping: float) -> Statistics | None:
        a, d = statistics
        ridge_a, ridge_d = factored_damping(a, d, damping)
        inverse_a, inverse_d = damped_inverse(a, ridge_a), damped_inverse(d, ridge_d)
        return None if inverse_a is None or inverse_d is None else (inverse_a, inverse_d)

    def condition(self, statistics: Statistics, damping: float) -> float:
        """The condition number of the damped block: that of a Kronecker product is the factors' product."""
        a, d = statistics
        ridge_a, ridge_d = factored_damping(a, d, damping)
        return condition_number(a, ridge_a) * condition_number(d, ridge_d)

    def _matrix(self, flat: Tensor) -> Tensor:
        """[weight, bias] of this span, side by side: [o, i + 1]."""
        if not self.has_bias:
            return flat.view(self.outputs, self.inputs)
        weight, bias = flat.split([self.outputs * self.inputs, self.outputs])
        return torch.cat([weight.view(self.outputs, self.inputs), bias.unsqueeze(1)], 1)

    def _apply(self, factors: Statistics, flat: Tensor) -> Tensor:
        a, d = factors
        matrix = kron_apply(d, self._matrix(flat), a)
        return torch.cat([matrix[:, : self.inputs].reshape(-1), matrix[:, self.inputs :].reshape(-1)])

    def solve(self, inverse: Statistics, b: Tensor) -> Tensor:
        return self._apply(inverse, b)

    def multiply(self, statistics: Statistics, v: Tensor) -> Tensor:
        return self._apply(tuple(x.to(v.dtype) for x in statistics), v)


def patches(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """What each output position of a convolution sees: [n, c, h, w] -> [n, positions, c * kh * kw]."""
    if isinstance(layer.padding, str):
        raise Refused("a convolution with padding by name has no patches here")
    unfolded = F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return unfolded.mT


class DiagonalBlock(Block):
    """The diagonal of the Fisher, for whatever has no Kronecker form."""

    kind = "diagonal"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(self.span.stop - self.span.start,)]

    def invert(self, statistics: Statistics, damping: float) -> Statistics | None:
        inverse = damped_inverse(statistics[0], damping)
        return None if inverse is None else (inverse,)

    def solve(self, inverse: Statistics, b: Tensor) -> Tensor:
        return inverse[0] * b

    def multiply(self, statistics: Statistics, v: Tensor) -> Tensor:
        return statistics[0].to(v.dtype) * v


class LogStdBlock(Block):
    """A free log std: the Fisher of a Gaussian is exactly 2 I there, whatever the batch."""

    kind = "exact, free log std"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return []

    @property
    def inverse_shapes(self) -> list[tuple[int, ...]]:
        return [()]

    def invert(self, statistics: Statistics, damping: float) -> Statistics | None:
        return (torch.tensor(1 / (2 + damping), dtype=torch.float64),)

    def solve(self, inverse: Statistics, b: Tensor) -> Tensor:
        return b * inverse[0]

    def multiply(self, statistics: Statistics, v: Tensor) -> Tensor:
        return 2 * v

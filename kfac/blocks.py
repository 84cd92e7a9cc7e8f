"""The curvature of one group of parameters: a Kronecker product, the exact log-std block, a diagonal.

A block has no memory. It turns what a batch shows into statistics, statistics into an inverse, and
applies that; the statistics are averaged and kept by the caller.

Shapes: a layer's inputs a are [cases, i] and the gradients d at its outputs [cases, o], or images [cases, i, h, w] and
[cases, o, h, w]; b is a block's span of the flat vector.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geonpg.errors import Refused

from .factors import (
    append_ones,
    condition_number,
    damped_inverse,
    eigen,
    factored_damping,
    kron_apply,
    second_moment,
    transposed,
)

Statistics = tuple[Tensor, ...]


class Block(ABC):
    """One contiguous span of the flat parameter vector."""

    kind: str

    def __init__(self, names: Sequence[str], span: slice) -> None:
        self.names, self.span = list(names), span

    @property
    @abstractmethod
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of its statistics."""

    @property
    def inverse_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of what `invert` returns."""
        return self.shapes

    @abstractmethod
    def invert(self, statistics: Statistics, damping: float) -> Statistics | None:
        """Compute what `solve` needs; None if the statistics cannot be inverted."""

    @abstractmethod
    def solve(self, inverse: Statistics, b: Tensor) -> Tensor:
        """Multiply b by (block + damping)^-1."""


class KroneckerBlock(Block):
    """A layer's weight and bias as one matrix [o, i + 1]: block = A (x) D.

    A is the second moment of its inputs, D that of the gradients at its outputs.

    max_factor: a factor with more rows than this is approximated by its diagonal.
    """

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
        """The shapes of A and D: matrices, or vectors where a factor is a diagonal."""
        a, d = self.inputs + self.has_bias, self.outputs
        return [(a,) if self.diagonal_a else (a, a), (d,) if self.diagonal_d else (d, d)]

    def observe_inputs(self, a: Tensor, cases: int) -> Tensor:
        """Compute A = E[sum over positions of a a^T]."""
        rows = self._input_rows(a)
        return second_moment(append_ones(rows) if self.has_bias else rows, cases, self.diagonal_a)

    def observe_gradients(self, d: Tensor) -> Tensor:
        """Compute D, the mean of d d^T over cases and positions."""
        rows = self._gradient_rows(d)
        return second_moment(rows, len(rows), self.diagonal_d)

    def _input_rows(self, a: Tensor) -> Tensor:
        """What entered the layer, a row per case and position: [rows, i]."""
        return (patches(self.layer, a) if isinstance(self.layer, nn.Conv2d) else a).reshape(-1, self.inputs)

    def _gradient_rows(self, d: Tensor) -> Tensor:
        """The gradients at what left it: [rows, o]."""
        return (d.movedim(-3, -1) if isinstance(self.layer, nn.Conv2d) else d).reshape(-1, self.outputs)

    def explains(self, pulled: Tensor, a: Tensor, d: Tensor) -> bool:
        """Whether its calls account for the whole gradient of the layer; not if its weight is used without a call."""
        inputs, gradients = self._input_rows(a), self._gradient_rows(d)
        seen = torch.cat([(gradients.mT @ inputs).reshape(-1), gradients.sum(0)])[: len(pulled)]
        scale = float((inputs.norm(dim=1).clamp(min=1.0) * gradients.norm(dim=1)).sum())
        return not float((pulled - seen).norm()) > torch.finfo(pulled.dtype).eps ** 0.5 * scale

    def invert(self, statistics: Statistics, damping: float) -> Statistics | None:
        """Invert A and D, each with its part of the damping."""
        a, d = statistics
        ridge_a, ridge_d = factored_damping(a, d, damping)
        inverse_a, inverse_d = damped_inverse(a, ridge_a), damped_inverse(d, ridge_d)
        return None if inverse_a is None or inverse_d is None else (inverse_a, inverse_d)

    def condition(self, statistics: Statistics, damping: float) -> float:
        """Compute the condition number of the damped block: the product of its factors' condition numbers."""
        a, d = statistics
        ridge_a, ridge_d = factored_damping(a, d, damping)
        return condition_number(a, ridge_a) * condition_number(d, ridge_d)

    def _matrix(self, flat: Tensor) -> Tensor:
        """[weight, bias] of this span, side by side: [o, i + 1]."""
        if not self.has_bias:
            return flat.view(self.outputs, self.inputs)
        weight, bias = flat.split([self.outputs * self.inputs, self.outputs])
        return torch.cat([weight.view(self.outputs, self.inputs), bias.unsqueeze(1)], 1)

    def solve(self, inverse: Statistics, b: Tensor) -> Tensor:
        """Compute D^-1 B A^-1, B being b as a matrix [o, i + 1]."""
        a, d = inverse
        return self._flat(kron_apply(d, self._matrix(b), a))

    def _flat(self, matrix: Tensor) -> Tensor:
        """[weight, bias], side by side, as they lie in this span."""
        return torch.cat([matrix[:, : self.inputs].reshape(-1), matrix[:, self.inputs :].reshape(-1)])


class EigenBlock(KroneckerBlock):
    """A Kronecker block whose damping is added to the product itself: A (x) D + damping I, by eigenvalues.

    Damping that is split over both factors, as the other block's, is never less, and far more where one is large.
    """

    @property
    def inverse_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of both factors' eigenvectors, and of the inverse in their coordinates."""
        return [*self.shapes, (self.outputs, self.inputs + self.has_bias)]

    def invert(self, statistics: Statistics, damping: float) -> Statistics | None:
        """Compute both factors' eigenvectors, and 1 / (product of eigenvalues + damping)."""
        try:
            (values_a, a), (values_d, d) = (eigen(factor) for factor in statistics)
        except RuntimeError:  # torch's LinAlgError, if they do not converge
            return None
        damped = torch.outer(values_d, values_a) + damping
        return (a, d, 1 / damped) if float(damped.min()) > 0 else None

    def condition(self, statistics: Statistics, damping: float) -> float:
        """Compute the condition number of the damped block."""
        (values_a, _), (values_d, _) = (eigen(factor) for factor in statistics)
        damped = torch.outer(values_d, values_a) + damping
        return float(damped.max() / damped.min()) if float(damped.min()) > 0 else math.inf

    def solve(self, inverse: Statistics, b: Tensor) -> Tensor:
        """Turn B into the factors' coordinates, divide, and turn it back."""
        a, d, scale = inverse
        within = scale * kron_apply(transposed(d), self._matrix(b), a)
        return self._flat(kron_apply(d, within, transposed(a)))


def patches(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Unfold what each output position of a convolution sees: [n, c, h, w] -> [n, positions, c * kh * kw]."""
    if isinstance(layer.padding, str):
        raise Refused("a convolution with padding by name has no patches here")
    unfolded = F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    return unfolded.mT


class DiagonalBlock(Block):
    """The diagonal of the Fisher, for whatever has no Kronecker form."""

    kind = "diagonal"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """One vector, as long as the span."""
        return [(self.span.stop - self.span.start,)]

    def invert(self, statistics: Statistics, damping: float) -> Statistics | None:
        """Invert the damped diagonal."""
        inverse = damped_inverse(statistics[0], damping)
        return None if inverse is None else (inverse,)

    def solve(self, inverse: Statistics, b: Tensor) -> Tensor:
        """Multiply b by the inverse diagonal."""
        return inverse[0] * b


class LogStdBlock(Block):
    """A free log std: the Fisher of a Gaussian is exactly 2 I there, whatever the batch."""

    kind = "exact, free log std"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """No shapes: there is nothing to observe."""
        return []

    @property
    def inverse_shapes(self) -> list[tuple[int, ...]]:
        """One number."""
        return [()]

    def invert(self, statistics: Statistics, damping: float) -> Statistics | None:
        """Compute 1 / (2 + damping)."""
        return (torch.tensor(1 / (2 + damping), dtype=torch.float64),)

    def solve(self, inverse: Statistics, b: Tensor) -> Tensor:
        """Divide b by 2 + damping."""
        return b * inverse[0]

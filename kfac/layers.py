"""The layers that are written out, each at one point: how its derivatives follow from those of its input."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .activations import activation_of

# The directions of one layer: views into the flat direction, one per parameter of the layer.
Directions = Sequence[Tensor]


class LayerAt(ABC):
    """One layer at one point. A first derivative that is zero by construction is None."""

    value: Tensor

    @abstractmethod
    def first(self, r: Tensor | None, v: Directions) -> Tensor | None:
        """Compute R of the layer's value from R of its input."""

    @abstractmethod
    def second(self, r: Tensor | None, s: Tensor | None, v: Directions) -> Tensor | None:
        """Compute S of the layer's value from R and S of its input."""

    @abstractmethod
    def pull(self, d: Tensor) -> Tensor:
        """Compute the gradient at the input from the gradient d at the value."""

    @abstractmethod
    def gradients(self, d: Tensor) -> list[Tensor]:
        """Compute the gradients of the layer's parameters."""

    @abstractmethod
    def gradients_each(self, d: Tensor) -> list[Tensor]:
        """Compute the gradients of the layer's parameters for every case by itself: [cases, size of a parameter]."""

    @abstractmethod
    def pull_derivative(self, d: Tensor, rd: Tensor, r: Tensor | None, v: Directions) -> Tensor:
        """Differentiate `pull` along v; rd is the derivative of d."""

    @abstractmethod
    def gradient_derivatives(self, d: Tensor, rd: Tensor, r: Tensor | None) -> list[Tensor]:
        """Differentiate `gradients` along v."""


class LinearAt(LayerAt):
    """A linear layer: s = W a + b."""

    def __init__(self, module: nn.Module, a: Tensor, parameters: Sequence[Tensor], value: Tensor | None) -> None:
        self.a, self.weight, self.has_bias = a, parameters[0], len(parameters) > 1
        self.value = F.linear(a, *parameters) if value is None else value

    def first(self, r: Tensor | None, v: Directions) -> Tensor:
        """Compute V a + v_b + W r."""
        out = F.linear(self.a, *v)
        return out if r is None else out.addmm_(r, self.weight.mT)

    def second(self, r: Tensor | None, s: Tensor | None, v: Directions) -> Tensor | None:
        """Compute 2 V r + W s."""
        if r is None:
            return None
        out = r @ (2 * v[0]).mT
        return out if s is None else out.addmm_(s, self.weight.mT)

    def pull(self, d: Tensor) -> Tensor:
        """Compute W^T d."""
        return d @ self.weight

    def gradients(self, d: Tensor) -> list[Tensor]:
        """Compute d a^T and d, summed over the rows."""
        return [d.mT @ self.a, d.sum(0)] if self.has_bias else [d.mT @ self.a]

    def gradients_each(self, d: Tensor) -> list[Tensor]:
        """Compute d a^T and d of every row."""
        weight = (d[:, :, None] * self.a[:, None, :]).flatten(1)
        return [weight, d] if self.has_bias else [weight]

    def pull_derivative(self, d: Tensor, rd: Tensor, r: Tensor | None, v: Directions) -> Tensor:
        """Compute W^T rd + V^T d."""
        return torch.addmm(rd @ self.weight, d, v[0])

    def gradient_derivatives(self, d: Tensor, rd: Tensor, r: Tensor | None) -> list[Tensor]:
        """Compute rd a^T + d r^T and rd, summed over the rows."""
        weight, *bias = self.gradients(rd)
        return [weight if r is None else weight.addmm_(d.mT, r), *bias]


class ActivationAt(LayerAt):
    """An elementwise activation: a = phi(s)."""

    def __init__(self, module: nn.Module, s: Tensor, parameters: Sequence[Tensor], value: Tensor | None) -> None:
        activation = activation_of(module)
        assert activation is not None
        self.s, self.activation = s, activation
        self.value = activation.value(s) if value is None else value

    @cached_property
    def slope(self) -> Tensor:
        """phi'(s)."""
        return self.activation.slope(self.s, self.value)

    @cached_property
    def bend(self) -> Tensor:
        """phi''(s)."""
        return self.activation.bend(self.s, self.value)

    def first(self, r: Tensor | None, v: Directions) -> Tensor | None:
        """Compute phi' r."""
        return None if r is None else self.slope * r

    def second(self, r: Tensor | None, s: Tensor | None, v: Directions) -> Tensor | None:
        """Compute phi'' r^2 + phi' s."""
        if r is None:
            return None
        bent = self.bend * r
        bent *= r
        return bent if s is None else bent.addcmul_(self.slope, s)

    def pull(self, d: Tensor) -> Tensor:
        """Compute phi' d."""
        return d * self.slope

    def gradients(self, d: Tensor) -> list[Tensor]:
        """Return nothing: there are no parameters."""
        return []

    def gradients_each(self, d: Tensor) -> list[Tensor]:
        """Return nothing: there are no parameters."""
        return []

    def pull_derivative(self, d: Tensor, rd: Tensor, r: Tensor | None, v: Directions) -> Tensor:
        """Compute phi' rd + phi'' r d."""
        return rd * self.slope if r is None else rd * self.slope + d * self.bend * r

    def gradient_derivatives(self, d: Tensor, rd: Tensor, r: Tensor | None) -> list[Tensor]:
        """Return nothing: there are no parameters."""
        return []


class FreeLogStdAt(LayerAt):
    """A free log std: [mean, log std], the second half a parameter."""

    def __init__(self, module: nn.Module, mean: Tensor, parameters: Sequence[Tensor], value: Tensor | None) -> None:
        self.mean = mean
        self.value = torch.cat([mean, parameters[0].expand_as(mean)], -1) if value is None else value

    def first(self, r: Tensor | None, v: Directions) -> Tensor:
        """Append the direction of the log std to r."""
        moved = torch.zeros_like(self.mean) if r is None else r
        return torch.cat([moved, v[0].expand_as(self.mean)], -1)

    def second(self, r: Tensor | None, s: Tensor | None, v: Directions) -> Tensor | None:
        """Append zero to s: the log std is its own parameter."""
        return None if s is None else torch.cat([s, torch.zeros_like(self.mean)], -1)

    def pull(self, d: Tensor) -> Tensor:
        """Return the first half of d."""
        return d.chunk(2, -1)[0]

    def gradients(self, d: Tensor) -> list[Tensor]:
        """Sum the second half of d over the rows."""
        return [d.chunk(2, -1)[1].sum(0)]

    def gradients_each(self, d: Tensor) -> list[Tensor]:
        """Return the second half of d."""
        return [d.chunk(2, -1)[1]]

    def pull_derivative(self, d: Tensor, rd: Tensor, r: Tensor | None, v: Directions) -> Tensor:
        """Return the first half of rd."""
        return self.pull(rd)

    def gradient_derivatives(self, d: Tensor, rd: Tensor, r: Tensor | None) -> list[Tensor]:
        """Sum the second half of rd over the rows."""
        return self.gradients(rd)

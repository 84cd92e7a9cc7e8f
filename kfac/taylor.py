"""Directional derivatives through a feed-forward network, written out layer by layer.

A network is linearised at one parameter vector on one batch. From there on, every derivative is one
sweep over stored activations: R and S (paper, algorithms 1 and 2), J^T u, and the derivative of
J^T u along a direction (algorithm 3). Autograd is not involved, which is what makes it fast.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .activations import activation_of
from .families import FreeLogStd
from .layout import Layout
from .linearisation import Linearisation, Signals

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

    def pull_derivative(self, d: Tensor, rd: Tensor, r: Tensor | None, v: Directions) -> Tensor:
        """Return the first half of rd."""
        return self.pull(rd)

    def gradient_derivatives(self, d: Tensor, rd: Tensor, r: Tensor | None) -> list[Tensor]:
        """Sum the second half of rd over the rows."""
        return self.gradients(rd)


@dataclass(frozen=True)
class Step:
    """One layer of a feed-forward plan: its name, its module, its number of parameters, how to evaluate it.

    `at` takes the module, the input, the parameters and, where it is known already, the value.
    """

    name: str
    module: nn.Module
    parameters: int
    at: Callable[[nn.Module, Tensor, Sequence[Tensor], Tensor | None], LayerAt]


def plan_of(module: nn.Module, prefix: str = "") -> list[Step] | None:
    """Write the module as a chain of layers; None where any part of it has no written form."""
    if module._forward_hooks or module._forward_pre_hooks or any(not p.requires_grad for p in module.parameters()):
        return None
    if type(module) is nn.Sequential:
        # not named_children(), which passes over a module that stands in the chain a second time
        parts = [plan_of(child, f"{prefix}{name}.") for name, child in module._modules.items() if child is not None]
        known = [part for part in parts if part is not None]
        return list(chain.from_iterable(known)) if len(known) == len(parts) else None
    name = prefix.removesuffix(".")
    if type(module) is nn.Linear:
        # torch registers a weight anew, behind the bias, when it removes a weight norm
        in_order = list(module._parameters) == ["weight", "bias"]
        return [Step(name, module, 1 + (module.bias is not None), LinearAt)] if in_order else None
    if type(module) is FreeLogStd:
        return [Step(name, module, 1, FreeLogStdAt)]
    return None if activation_of(module) is None else [Step(name, module, 0, ActivationAt)]


class FeedForward(Linearisation):
    """A chain of written-out layers at one point.

    plan: the layers, in order.
    layout: where their parameters lie in y.
    values: the layers' values, if the network has just been run at y on x.
    """

    vectorises = False  # it accumulates in place

    def __init__(
        self, plan: Sequence[Step], layout: Layout, y: Tensor, x: Tensor, values: Sequence[Tensor] = ()
    ) -> None:
        self.plan, self.layout, self.size, self._y, self._x = plan, layout, layout.size, y, x
        known = values if len(values) == len(plan) else [None] * len(plan)
        self.layers: list[LayerAt] = []
        for step, parameters, value in zip(plan, self._per_layer(y), known, strict=True):
            self.layers.append(step.at(step.module, x, parameters, value))
            x = self.layers[-1].value
        self.z = x

    def thinned(self, every: int) -> "FeedForward":
        """Return the chain on every so many-th case."""
        if every == 1:
            return self
        values = [layer.value[::every].contiguous() for layer in self.layers]
        return FeedForward(self.plan, self.layout, self._y, self._x[::every].contiguous(), values)

    def _per_layer(self, flat: Tensor) -> list[list[Tensor]]:
        views = iter(self.layout.split(flat))
        return [[next(views) for _ in range(step.parameters)] for step in self.plan]

    def _firsts(self, v: Tensor) -> list[Tensor | None]:
        """R of the network's input and of every layer's value."""
        rs: list[Tensor | None] = [None]
        for layer, direction in zip(self.layers, self._per_layer(v), strict=True):
            rs.append(layer.first(rs[-1], direction))
        return rs

    def _present(self, derivative: Tensor | None) -> Tensor:
        return torch.zeros_like(self.z) if derivative is None else derivative

    def first(self, v: Tensor) -> Tensor:
        """Compute R = J v in one forward sweep."""
        return self._present(self._firsts(v)[-1])

    def second(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute R and S in one forward sweep."""
        r: Tensor | None = None
        s: Tensor | None = None
        for layer, direction in zip(self.layers, self._per_layer(v), strict=True):
            r, s = layer.first(r, direction), layer.second(r, s, direction)
        return self._present(r), self._present(s)

    def pullback(self, u: Tensor) -> Tensor:
        """Compute J^T u in one backward sweep."""
        gradients: list[Tensor] = []
        for i in reversed(range(len(self.layers))):
            gradients[:0] = self.layers[i].gradients(u)
            u = self.layers[i].pull(u) if i else u
        return self.layout.flatten(gradients)

    def pullback_derivative(self, u: Tensor, v: Tensor) -> Tensor:
        """Differentiate the backward sweep along v (paper, algorithm 3)."""
        rs, directions = self._firsts(v), self._per_layer(v)
        ru, derivatives = torch.zeros_like(u), list[Tensor]()
        for i in reversed(range(len(self.layers))):
            layer, r = self.layers[i], rs[i]
            derivatives[:0] = layer.gradient_derivatives(u, ru, r)
            if i:
                ru, u = layer.pull_derivative(u, ru, r, directions[i]), layer.pull(u)
        return self.layout.flatten(derivatives)

    def signals(self, u: Tensor) -> Signals:
        """Collect each linear layer's input and the gradient at its output."""
        signals: Signals = {}
        for i in reversed(range(len(self.layers))):
            layer = self.layers[i]
            if isinstance(layer, LinearAt):
                signals[self.plan[i].name] = (layer.a, u)
            u = layer.pull(u) if i else u
        return signals

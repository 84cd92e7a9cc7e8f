"""Directional derivatives through a feed-forward network, written out layer by layer.

A network is linearised at one parameter vector on one batch. From there on, every derivative is one
sweep over stored activations: R and S (paper, algorithms 1 and 2), J^T u, and the derivative of
J^T u along a direction (algorithm 3). With a single output R and J^T u need one product per layer.
Autograd is not involved, which is what makes it fast.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .activations import activation_of
from .families import FreeLogStd, with_log_std
from .layers import ActivationAt, FreeLogStdAt, LayerAt, LinearAt
from .layout import Layout
from .linearisation import Linearisation, Signals


@dataclass(frozen=True)
class Step:
    """One layer of a feed-forward plan: its name, its module, its number of parameters, how to evaluate it.

    `at` takes the module, the input, the parameters and, where it is known already, the value; `function` the input
    and the parameters.
    """

    name: str
    module: nn.Module
    parameters: int
    at: Callable[[nn.Module, Tensor, Sequence[Tensor], Tensor | None], LayerAt]
    function: Callable[..., Tensor]


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
        return [Step(name, module, 1 + (module.bias is not None), LinearAt, F.linear)] if in_order else None
    if type(module) is FreeLogStd:
        return [Step(name, module, 1, FreeLogStdAt, with_log_std)]
    return None if activation_of(module) is None else [Step(name, module, 0, ActivationAt, module.forward)]


def chain_of(plan: Sequence[Step], parameters: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a written-out module as a function of its input, with these parameters in their order."""

    def chain(input: Tensor) -> Tensor:
        own, x = iter(parameters), input
        for step in plan:
            values = [next(own) for _ in range(step.parameters)]
            x = step.function(x, *values)
        return x

    return chain


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

    @cached_property
    def _slopes(self) -> dict[int, Tensor] | None:
        """The gradient of a single output at the value of every layer with parameters; None if there are several.

        J v is then a sum over layers, and J^T u needs no sweep: that saves half the large products of a solve.
        """
        if self.z.shape[1] != 1:
            return None
        d, slopes = torch.ones_like(self.z), dict[int, Tensor]()
        for i in reversed(range(len(self.layers))):
            if self.plan[i].parameters:
                slopes[i] = d
            d = self.layers[i].pull(d) if i else d
        return dict(reversed(slopes.items()))

    def first(self, v: Tensor) -> Tensor:
        """Compute R = J v in one forward sweep, or layer by layer for a single output."""
        if self._slopes is None:
            return self._present(self._firsts(v)[-1])
        directions = self._per_layer(v)
        own = [(self._present(self.layers[i].first(None, directions[i])), d) for i, d in self._slopes.items()]
        return torch.stack([torch.linalg.vecdot(r, d) for r, d in own]).sum(0)[:, None]

    def second(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute R and S in one forward sweep."""
        r: Tensor | None = None
        s: Tensor | None = None
        for layer, direction in zip(self.layers, self._per_layer(v), strict=True):
            r, s = layer.first(r, direction), layer.second(r, s, direction)
        return self._present(r), self._present(s)

    def pullback(self, u: Tensor) -> Tensor:
        """Compute J^T u in one backward sweep, or layer by layer for a single output."""
        if self._slopes is None:
            return self.layout.flatten(self._gradients(lambda layer, d: layer.gradients(d), u))
        gradients = [self.layers[i].gradients(u * d) for i, d in self._slopes.items()]
        return self.layout.flatten(list(chain.from_iterable(gradients)))

    def pullback_each(self, u: Tensor) -> Tensor:
        """Compute the rows of J^T u in one backward sweep."""
        return torch.cat(self._gradients(lambda layer, d: layer.gradients_each(d), u), 1)

    def _gradients(self, of: Callable[[LayerAt, Tensor], list[Tensor]], u: Tensor) -> list[Tensor]:
        """What every layer makes of the gradient at its value, in the order of the parameters."""
        gradients: list[Tensor] = []
        for i in reversed(range(len(self.layers))):
            gradients[:0] = of(self.layers[i], u)
            u = self.layers[i].pull(u) if i else u
        return gradients

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

"""The same derivatives for any module, by autograd and `torch.func` forward mode."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from .layout import Layout
from .taylor import FeedForward, Linearisation, Signals, plan_of


@dataclass(frozen=True)
class Call:
    """The arguments of one call of the module: the batch."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


@contextmanager
def recording(layers: dict[str, nn.Module]) -> Iterator[dict[str, list[tuple[Tensor, Tensor]]]]:
    """Inside, every call of a layer leaves its input and output behind; afterwards no hook remains."""
    record: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in layers}

    def remember(name: str) -> Callable[..., Tensor]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            record[name].append((inputs[0].detach(), output))
            return output.clone()  # an in-place activation must not overwrite what we keep

        return hook

    handles = [layer.register_forward_hook(remember(name)) for name, layer in layers.items()]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()


class Network:
    """A module as a function of its flat parameter vector.

    Plain chains of linear layers and activations take the written-out path of `taylor.py`, everything
    else `torch.func`. The module itself is never altered: buffers are evaluated on copies.
    """

    def __init__(self, module: nn.Module, layers: Sequence[str] = (), written_out: bool = True) -> None:
        self.module = module
        self.layout = Layout(module)
        self.layers = {name: module.get_submodule(name) for name in layers}
        self.plan = plan_of(module) if written_out else None
        if self.plan is not None and sum(step.parameters for step in self.plan) != len(self.layout.names):
            self.plan = None  # a layer that is used twice
        self.seed = 0

    def evaluate(self, y: Tensor, call: Call) -> Tensor:
        """The outputs z at the parameters y. Dropout draws the same mask every time."""
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            state = {**self.layout.named(y), **buffers}
            return functional_call(self.module, state, call.args, call.kwargs)

    def _written_out_input(self, call: Call) -> Tensor | None:
        if self.plan is None or len(call.args) != 1 or call.kwargs:
            return None
        x = call.args[0]
        return x if isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point() else None

    @torch.no_grad()
    def outputs(self, y: Tensor, call: Call) -> Tensor:
        x = self._written_out_input(call)
        if x is None or self.plan is None:
            return self.evaluate(y, call)
        return FeedForward(self.plan, self.layout, y, x).z

    def linearise(self, y: Tensor, call: Call) -> Linearisation:
        x = self._written_out_input(call)
        if x is None or self.plan is None:
            return Functional(self, y, call)
        with torch.no_grad():
            return FeedForward(self.plan, self.layout, y, x)


class Functional(Linearisation):
    """Any module at one point: reverse mode by autograd, forward mode by `torch.func`."""

    def __init__(self, network: Network, y: Tensor, call: Call) -> None:
        self.network, self.y, self.call, self.size = network, y, call, network.layout.size
        with torch.enable_grad(), recording(network.layers) as self._record:
            self._leaf = y.detach().requires_grad_()
            self._z = network.evaluate(self._leaf, call)
        self.z = self._z.detach()

    def _along(self, v: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda t: self.network.evaluate(self.y + t * v, self.call)

    def _tangent(self, function: Callable[[Tensor], Any]) -> Any:
        """Value and derivative of a function of one real number, at 0."""
        zero = torch.zeros((), dtype=self.y.dtype, device=self.y.device)
        return jvp(function, (zero,), (torch.ones_like(zero),))

    @torch.no_grad()
    def first(self, v: Tensor) -> Tensor:
        return self._tangent(self._along(v))[1]

    @torch.no_grad()
    def second(self, v: Tensor) -> tuple[Tensor, Tensor]:
        along = self._along(v)

        def derivative(t: Tensor) -> Tensor:
            return jvp(along, (t,), (torch.ones_like(t),))[1]

        return self._tangent(derivative)

    def pullback(self, u: Tensor) -> Tensor:
        return torch.autograd.grad(self._z, self._leaf, u, retain_graph=True)[0]

    def pullback_derivative(self, u: Tensor, v: Tensor) -> Tensor:
        def pulled(y: Tensor) -> Tensor:
            pull = torch.func.vjp(lambda p: self.network.evaluate(p, self.call), y)[1]
            return pull(u)[0]

        return jvp(pulled, (self.y,), (v,))[1]

    def signals(self, u: Tensor) -> Signals:
        """A layer called several times shows the rows of all its calls."""
        calls = [(name, *pair) for name, pairs in self._record.items() for pair in pairs]
        if not calls:
            return {}
        outputs = [output for _, _, output in calls]
        grads = torch.autograd.grad(self._z, outputs, u, retain_graph=True, materialize_grads=True)
        merged: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
        for (name, a, _), grad in zip(calls, grads, strict=True):
            inputs, gradients = merged.setdefault(name, ([], []))
            inputs.append(a)
            gradients.append(grad)
        return {name: (torch.cat(a), torch.cat(d)) for name, (a, d) in merged.items()}

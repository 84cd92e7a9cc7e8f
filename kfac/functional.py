"""The derivatives of any function of the parameters, by autograd and by the forward mode of `torch.func`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import jvp

from .linearisation import Linearisation, Signals
from .modes import Curve, forward_mode, reverse_mode
from .several import merged


@contextmanager
def recording(layers: Mapping[str, nn.Module]) -> Iterator[dict[str, list[tuple[Tensor, Tensor]]]]:
    """Record the input and output of every call of a layer inside the block; afterwards no hook remains."""
    record: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in layers}

    def remember(name: str) -> Callable[..., Tensor]:
        def hook(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Tensor:
            record[name].append(((args[0] if args else kwargs["input"]).detach(), output))
            return output.clone()  # an in-place activation must not overwrite what we keep

        return hook

    handles = [layer.register_forward_hook(remember(name), with_kwargs=True) for name, layer in layers.items()]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()


class Functional(Linearisation):
    """Any function z(y) at one point: reverse mode by autograd, forward mode by `torch.func`.

    function: the outputs as a function of the parameters; it may be asked at a point in double precision.
    layers: the layers inside it whose signals are asked for.
    trusts_nested: whether second derivatives may be made by nested forward mode; otherwise by differences of R.
    each: J^T u of every case by itself, all at once; without it, and where it raises RuntimeError, one after the other.
    """

    vectorises = True

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        y: Tensor,
        layers: Mapping[str, nn.Module],
        trusts_nested: Callable[["Functional"], bool],
        each: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        self.y, self.size = y, y.numel()
        self._function, self._layers, self._trusts_nested, self._each = function, layers, trusts_nested, each
        with torch.enable_grad(), recording(layers) as self._record:
            self._leaf = y.detach().requires_grad_()
            self._z = function(self._leaf)
        self.z = self._z.detach()

    def _elsewhere(self, y: Tensor) -> "Functional":
        return Functional(self._function, y, self._layers, self._trusts_nested)

    def _along(self, v: Tensor) -> Curve:
        return lambda t: self._function(self.y + t * v)

    def first(self, v: Tensor) -> Tensor:
        """Compute R = J v by forward mode, or by reverse mode where an operation has none."""
        try:
            with torch.no_grad():
                return forward_mode(self._along(v), self.y.new_zeros(()))[1]
        except RuntimeError:  # an operation, or a function of the user's, that has none
            return self._first_by_reverse_mode(v)

    def _first_by_reverse_mode(self, v: Tensor) -> Tensor:
        try:
            r = reverse_mode(self._along(v))(self.y.new_zeros(()))
            right = self._is_adjoint(v, r)
        except RuntimeError:  # a backward pass that cannot be differentiated either
            right = False
        return r if right else self._by_differences(lambda at, v: at.z, v)

    def _is_adjoint(self, v: Tensor, r: Tensor) -> bool:
        """Whether w^T r = (J^T w)^T v, as for r = J v.

        What a function marked `once_differentiable` adds to r torch silently leaves out.
        """
        w = torch.randn(r.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(r)
        wrong = abs(float((w * r).sum()) - float(self.pullback(w) @ v))
        return wrong <= torch.finfo(r.dtype).eps ** 0.75 * float(w.norm() * r.norm())

    def second(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute R and S, by nested forward mode where that can be trusted."""
        trusted = self._trusts_nested(self)
        return self._nested(v) if trusted else (self.first(v), self._by_differences(Functional.first, v))

    @torch.no_grad()
    def _nested(self, v: Tensor) -> tuple[Tensor, Tensor]:
        along = self._along(v)
        return forward_mode(lambda t: forward_mode(along, t)[1], self.y.new_zeros(()))

    def _by_differences(self, quantity: Callable[["Functional", Tensor], Tensor], v: Tensor) -> Tensor:
        """The derivative of a quantity along v, by its values at two points near ours: S, say, from the exact R.

        In double precision, where it is right to several digits, and the points are so near that hardly a ReLU
        switches between them.
        """
        try:
            return self._differences(quantity, v.double()).to(v.dtype)
        except RuntimeError:  # a module that insists on its own precision
            return self._differences(quantity, v)

    def _differences(self, quantity: Callable[["Functional", Tensor], Tensor], v: Tensor) -> Tensor:
        y = self.y.to(v.dtype)
        step = torch.finfo(v.dtype).eps ** (1 / 3) * (1 + float(y.norm())) / max(float(v.norm()), 1e-30)
        ahead, behind = (quantity(self._elsewhere(y + t * v), v) for t in (step, -step))
        return (ahead - behind) / (2 * step)

    def nested_is_right(self) -> bool:
        """Whether nested forward mode agrees with differences of R.

        It is asked along every parameter at a point nearby, since where we stand it may be right by chance: behind a
        head of zeros S is zero whatever the layers before it do.
        """
        noise = torch.randn(2, self.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        away, v = (0.5 * (1 + float(self.y.norm())) / self.size**0.5 * noise).to(self.y)
        try:
            nearby = self._elsewhere(self.y + away)
            (r, s), differences = nearby._nested(v), nearby._by_differences(Functional.first, v)
        except (RuntimeError, ValueError):  # no forward mode, or no value nearby
            return False
        agree = (s - differences).norm(dim=-1) <= 1e-4 * (s.norm(dim=-1) + r.norm(dim=-1))
        return float(agree.double().mean()) > 0.5  # in a few cases a ReLU may switch between the points

    def pullback(self, u: Tensor) -> Tensor:
        """Compute J^T u by a backward pass."""
        return torch.autograd.grad(self._z, self._leaf, u, retain_graph=True)[0]

    def pullback_each(self, u: Tensor) -> Tensor:
        """Compute the rows of J^T u, all at once where that can be done."""
        if self._each is not None:
            try:
                return self._each(self.y, u)
            except (RuntimeError, ValueError):  # cases that depend on each other, or cannot stand alone
                pass
        own, alone = u.reshape(-1, u.shape[-1]), torch.zeros_like(u)
        rows = []
        for row, here in zip(own, alone.view_as(own), strict=True):
            here.copy_(row)
            rows.append(self.pullback(alone))
            here.zero_()
        return torch.stack(rows)

    def pullback_derivative(self, u: Tensor, v: Tensor) -> Tensor:
        """Differentiate the backward pass along v, by forward mode or, where that fails, by differences."""

        def pulled(y: Tensor) -> Tensor:
            return torch.func.vjp(self._function, y)[1](u)[0]

        try:
            return jvp(pulled, (self.y,), (v,))[1]
        except RuntimeError:
            return self._differences(lambda at, v: at.pullback(u), v)

    def signals(self, u: Tensor) -> Signals:
        """Collect the rows of all calls of each layer; calls that have no gradient are left out."""
        calls = [(name, a, s) for name, pairs in self._record.items() for a, s in pairs if s.requires_grad]
        if not calls:
            return {}
        outputs = [output for _, _, output in calls]
        grads = torch.autograd.grad(self._z, outputs, u, retain_graph=True, materialize_grads=True)
        found: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for (name, a, _), grad in zip(calls, grads, strict=True):
            layer = self._layers[name]
            found.setdefault(name, []).append((batched(layer, a), batched(layer, grad)))
        return {name: merged(name, pairs) for name, pairs in found.items()}


def batched(layer: nn.Module, x: Tensor) -> Tensor:
    """Reshape what entered or left a layer, cases first: [cases, features], or [cases, channels, h, w] of an image."""
    return x.reshape(-1, x.shape[-1]) if isinstance(layer, nn.Linear) else x.reshape(-1, *x.shape[-3:])

"""The same derivatives for any module, by autograd and `torch.func` forward mode."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from geonpg.errors import Refused

from .calls import Call, Watched, watching
from .layout import Layout
from .modes import Curve, forward_mode, reverse_mode
from .several import Several, joined, merged
from .taylor import FeedForward, Linearisation, Signals, plan_of


@contextmanager
def recording(layers: dict[str, nn.Module]) -> Iterator[dict[str, list[tuple[Tensor, Tensor]]]]:
    """Inside, every call of a layer leaves its input and output behind; afterwards no hook remains."""
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


class WithoutDropout(TorchFunctionMode):
    """Dropout is noise in the gradient, not part of the model whose geometry is measured.

    Nor could it be: forward and reverse mode draw different masks from the same seed.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout):
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs, "dropout_p": 0.0}
            return func(**kwargs)
        return func(*args, **kwargs)


def aliases_of(module: nn.Module) -> dict[str, str]:
    """Further names of parameters and buffers that several modules share: to the first one.

    A module that is registered twice gives none; torch's own `tie_weights` would swap it twice, and leave it broken.
    """
    first: dict[int, str] = {}
    aliases: dict[str, str] = {}
    for prefix, owner in module.named_modules():
        for name, tensor in (*owner._parameters.items(), *owner._buffers.items()):
            full = f"{prefix}.{name}" if prefix else name
            if tensor is not None and first.setdefault(id(tensor), full) != full:
                aliases[full] = first[id(tensor)]
    return aliases


class Network:
    """A module as a function of its flat parameter vector.

    Plain chains of linear layers and activations take the written-out path of `taylor.py`, everything
    else `torch.func`. The module itself is never altered: buffers are evaluated on copies.
    """

    def __init__(
        self, module: nn.Module, layers: Sequence[str] = (), written_out: bool = True, layout: Layout | None = None
    ) -> None:
        self.module = module
        self.layout = layout or Layout(module)
        self.layers = {name: module.get_submodule(name) for name in layers}
        self.plan = plan_of(module) if written_out else None
        if self.plan is not None and sum(step.parameters for step in self.plan) != len(self.layout.names):
            self.plan = None  # a layer that is used twice, or one that is not trained
        self._aliases = aliases_of(module)
        self._nested_checked: dict[bool, bool] = {}

    def trusts_nested(self, at: "Functional") -> bool:
        """Checked once for training and once for evaluation mode.

        torch's nested forward mode is silently wrong through LayerNorm and through BatchNorm in
        training, whose saved statistics it takes for constants.
        """
        training = self.module.training
        if training not in self._nested_checked:
            self._nested_checked[training] = at.nested_is_right()
        return self._nested_checked[training]

    def evaluate(self, y: Tensor, call: Call) -> Tensor:
        """The outputs z at the parameters y, without dropout; other randomness is the same every time."""
        # at a point in another precision than the parameters', what had theirs comes along; all else keeps its own
        own = self.layout.dtype
        buffers = {
            name: b.to(y.dtype if b.dtype == own else b.dtype, copy=True) for name, b in self.module.named_buffers()
        }
        # the fused attention kernels have neither a forward mode nor a second derivative
        with torch.random.fork_rng(), sdpa_kernel(SDPBackend.MATH), WithoutDropout():
            torch.manual_seed(0)
            state = {**self.layout.named(y), **buffers}
            state |= {alias: state[name] for alias, name in self._aliases.items() if name in state}
            z = functional_call(self.module, state, call.args, call.kwargs, tie_weights=False)
        if not isinstance(z, Tensor) or z.ndim < 2:
            got = f"a tensor of shape {tuple(z.shape)}" if isinstance(z, Tensor) else f"a {type(z).__name__}"
            raise Refused(f"the module must return the family's parameters as one tensor [cases, ..., size], not {got}")
        return z

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

    def linearise(self, y: Tensor, call: Call, values: Sequence[Tensor] = ()) -> Linearisation:
        """The network at y; `values` are those watched there, and save a forward pass."""
        x = self._written_out_input(call)
        if x is None or self.plan is None:
            return Functional(self, y, call)
        usable = values if all(value.dtype == y.dtype for value in values) else ()
        with torch.no_grad():
            return FeedForward(self.plan, self.layout, y, x, usable)

    def linearise_all(self, y: Tensor, calls: Sequence[Call], values: Sequence[Sequence[Tensor]] = ()) -> Linearisation:
        """The network at y on the cases of all calls together."""
        known = values or [()] * len(calls)
        parts = [self.linearise(y, call, own) for call, own in zip(calls, known, strict=True)]
        return parts[0] if len(parts) == 1 else Several(parts)

    def outputs_all(self, y: Tensor, calls: Sequence[Call]) -> Tensor:
        outputs = [self.outputs(y, call) for call in calls]
        return outputs[0] if len(outputs) == 1 else joined(outputs)

    def watching(self) -> AbstractContextManager[list[Watched]]:
        """Inside, calls of the module are noted, with the values of a written-out plan's layers."""
        leaves = {id(step.module): step.module for step in self.plan or []}
        return watching(self.module, leaves.values(), self.layout.parameters[0])


class Functional(Linearisation):
    """Any module at one point: reverse mode by autograd, forward mode by `torch.func`."""

    vectorises = True

    def __init__(self, network: Network, y: Tensor, call: Call) -> None:
        self.network, self.y, self.call, self.size = network, y, call, network.layout.size
        with torch.enable_grad(), recording(network.layers) as self._record:
            self._leaf = y.detach().requires_grad_()
            self._z = network.evaluate(self._leaf, call)
        self.z = self._z.detach()

    def _along(self, v: Tensor) -> Curve:
        return lambda t: self.network.evaluate(self.y + t * v, self.call)

    def first(self, v: Tensor) -> Tensor:
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
        """Is w^T r = (J^T w)^T v, as for r = J v?

        What a function marked `once_differentiable` adds to r torch silently leaves out.
        """
        w = torch.randn(r.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(r)
        wrong = abs(float((w * r).sum()) - float(self.pullback(w) @ v))
        return wrong <= torch.finfo(r.dtype).eps ** 0.75 * float(w.norm() * r.norm())

    def second(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """R and S, by nested forward mode where that can be trusted."""
        trusted = self.network.trusts_nested(self)
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
        y, call = self.y.to(v.dtype), self.call.to(v.dtype)
        step = torch.finfo(v.dtype).eps ** (1 / 3) * (1 + float(y.norm())) / max(float(v.norm()), 1e-30)
        ahead, behind = (quantity(Functional(self.network, y + t * v, call), v) for t in (step, -step))
        return (ahead - behind) / (2 * step)

    def nested_is_right(self) -> bool:
        """Does nested forward mode agree with differences of R?

        Asked along every parameter at a point nearby, since where we stand it may be right by chance: behind a head
        of zeros S is zero whatever the layers before it do.
        """
        noise = torch.randn(2, self.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        away, v = (0.5 * (1 + float(self.y.norm())) / self.size**0.5 * noise).to(self.y)
        try:
            nearby = Functional(self.network, self.y + away, self.call)
            (r, s), differences = nearby._nested(v), nearby._by_differences(Functional.first, v)
        except (RuntimeError, ValueError):  # no forward mode, or no value nearby
            return False
        agree = (s - differences).norm(dim=-1) <= 1e-4 * (s.norm(dim=-1) + r.norm(dim=-1))
        return float(agree.double().mean()) > 0.5  # in a few cases a ReLU may switch between the points

    def pullback(self, u: Tensor) -> Tensor:
        return torch.autograd.grad(self._z, self._leaf, u, retain_graph=True)[0]

    def pullback_derivative(self, u: Tensor, v: Tensor) -> Tensor:
        def pulled(y: Tensor) -> Tensor:
            pull = torch.func.vjp(lambda p: self.network.evaluate(p, self.call), y)[1]
            return pull(u)[0]

        try:
            return jvp(pulled, (self.y,), (v,))[1]
        except RuntimeError:
            return self._differences(lambda at, v: at.pullback(u), v)

    def signals(self, u: Tensor) -> Signals:
        """A layer called several times shows the rows of all its calls, those without a gradient left out."""
        calls = [(name, a, s) for name, pairs in self._record.items() for a, s in pairs if s.requires_grad]
        if not calls:
            return {}
        outputs = [output for _, _, output in calls]
        grads = torch.autograd.grad(self._z, outputs, u, retain_graph=True, materialize_grads=True)
        found: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for (name, a, _), grad in zip(calls, grads, strict=True):
            layer = self.network.layers[name]
            found.setdefault(name, []).append((batched(layer, a), batched(layer, grad)))
        return {name: merged(name, pairs) for name, pairs in found.items()}


def batched(layer: nn.Module, x: Tensor) -> Tensor:
    """What entered or left a layer, its cases first: [cases, features], or [cases, channels, h, w] of an image."""
    return x.reshape(-1, x.shape[-1]) if isinstance(layer, nn.Linear) else x.reshape(-1, *x.shape[-3:])

"""A module as a function of its flat parameter vector, and the calls by which a closure uses it."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from geonpg.errors import Refused

from .contexts import WithoutDropout, is_autocast
from .functional import Functional
from .layout import Layout
from .linearisation import Linearisation
from .several import Several, joined
from .taylor import FeedForward, chain_of, plan_of

CHUNK_NUMBERS = 2**24  # that are held at once where gradients of many cases are computed together


@dataclass(frozen=True)
class Call:
    """The arguments of one call of the module: a batch, or a part of one."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def to(self, dtype: torch.dtype) -> "Call":
        """Return this call with its floating-point tensors in another precision."""

        def cast(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        return Call(*tree_map(cast, (self.args, self.kwargs)))

    @property
    def cases(self) -> int:
        """How many rows the first tensor has, 0 if there is none."""
        leaves = tree_leaves((self.args, self.kwargs))
        return next((len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim), 0)

    def thinned(self, every: int) -> "Call":
        """Return this call on every so many-th case: of every tensor with as many rows as the first."""
        cases = self.cases

        def rows(value: Any) -> Any:
            own = isinstance(value, Tensor) and value.ndim > 0 and len(value) == cases
            return value[::every].contiguous() if own else value

        return self if every == 1 else Call(*tree_map(rows, (self.args, self.kwargs)))


class Network:
    """A module as a function of its flat parameter vector.

    Plain chains of linear layers and activations take the written-out path of `taylor.py`, everything
    else `torch.func`. The module itself is never altered: buffers are evaluated on copies.

    module: returns the parameters of an output family as one tensor [cases, ..., size].
    layers: the names of the layers whose signals K-FAC asks for.
    written_out: False takes the general path for every module.
    layout: which parameters the vector holds; by default all that are trainable.
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
        self._nested_checked: dict[tuple[Hashable, bool], bool] = {}

    def trusts_nested(self, at: Functional, use: Hashable = "outputs") -> bool:
        """Whether nested forward mode is right for this use; checked once for training and once for evaluation mode.

        use: what is done with the module, the same if it is the same; None for something that is checked each time.

        torch's nested forward mode is silently wrong through LayerNorm and through BatchNorm in
        training, whose saved statistics it takes for constants.
        """
        if use is None:
            return at.nested_is_right()
        key = use, self.module.training
        if key not in self._nested_checked:
            self._nested_checked[key] = at.nested_is_right()
        return self._nested_checked[key]

    def with_parameters(self, y: Tensor) -> Callable[..., Any]:
        """Return the module as a function of its arguments, at the parameters y."""
        own = self.layout.dtype
        buffers = {
            name: b.to(y.dtype if b.dtype == own else b.dtype, copy=True) for name, b in self.module.named_buffers()
        }
        return self.with_values({**self.layout.named(y), **buffers})

    def with_values(self, state: dict[str, Tensor]) -> Callable[..., Any]:
        """Return the module as a function of its arguments, with these values of parameters and buffers, by name."""
        if self.plan is not None:  # without the detours of a module's call, which cost more than small layers do
            return chain_of(self.plan, [state[name] for name in self.layout.names])
        state = state | {alias: state[name] for alias, name in self._aliases.items() if name in state}
        return lambda *args, **kwargs: functional_call(self.module, state, args, kwargs, tie_weights=False)

    def repeatable(self) -> AbstractContextManager[None]:
        """Return a block in which every call of the module gives the same; a written-out chain does so anyway."""
        return repeatable() if self.plan is None else nullcontext()

    def evaluate(self, y: Tensor, call: Call) -> Tensor:
        """Compute the outputs z at the parameters y, without dropout; other randomness is the same every time.

        At a point in another precision than the parameters', inputs and those buffers that had theirs come along.
        """
        call = call if y.dtype == self.layout.dtype else call.to(y.dtype)
        with self.repeatable():
            z = self.with_parameters(y)(*call.args, **call.kwargs)
        if not isinstance(z, Tensor) or z.ndim < 2:
            got = f"a tensor of shape {tuple(z.shape)}" if isinstance(z, Tensor) else f"a {type(z).__name__}"
            raise Refused(f"the module must return the family's parameters as one tensor [cases, ..., size], not {got}")
        return z

    def _pull_each(self, y: Tensor, u: Tensor, call: Call) -> Tensor:
        """J^T u of every case, vectorised over rows of the call's tensors; RuntimeError if they are not its cases."""
        leaves, form = tree_flatten((call.args, call.kwargs))
        rows = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == len(u)]
        if u.ndim != 2 or call.cases != len(u):
            raise RuntimeError("an output is no case")

        def one(u: Tensor, *values: Tensor) -> Tensor:
            known = dict(zip(rows, values, strict=True))
            own = [known[i][None] if i in known else leaf for i, leaf in enumerate(leaves)]
            return grad(lambda y: (self.evaluate(y, Call(*tree_unflatten(own, form))) * u).sum())(y)

        found = vmap(one, chunk_size=chunk_for(y))(u, *(leaves[i] for i in rows))
        whole = vjp(partial(self.evaluate, call=call), y)[1](u)[0]
        if float((found.sum(0) - whole).norm()) > torch.finfo(u.dtype).eps ** 0.75 * float(found.norm()):
            raise RuntimeError("what one case gives depends on the others")
        return found

    def _written_out_input(self, call: Call) -> Tensor | None:
        """The input of a written-out plan, or None if this call has to take the general path."""
        if self.plan is None or len(call.args) != 1 or call.kwargs:
            return None
        x = call.args[0]
        return x if isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point() else None

    def is_written_out(self, inputs: Any) -> bool:
        """Whether a call with this one argument takes the written-out path."""
        return self._written_out_input(Call((inputs,))) is not None

    @torch.no_grad()
    def outputs(self, y: Tensor, call: Call) -> Tensor:
        """Compute the outputs z at y."""
        x = self._written_out_input(call)
        if x is None or self.plan is None:
            return self.evaluate(y, call)
        return FeedForward(self.plan, self.layout, y, x).z

    def linearise(self, y: Tensor, call: Call, values: Sequence[Tensor] = ()) -> Linearisation:
        """Linearise the network at y; `values` are the layers' values there, if known, and save a forward pass."""
        x = self._written_out_input(call)
        if x is None or self.plan is None:
            each = partial(self._pull_each, call=call)
            return Functional(partial(self.evaluate, call=call), y, self.layers, self.trusts_nested, each)
        usable = values if all(value.dtype == y.dtype for value in values) else ()
        with torch.no_grad():
            return FeedForward(self.plan, self.layout, y, x, usable)

    def linearise_all(self, y: Tensor, calls: Sequence[Call], values: Sequence[Sequence[Tensor]] = ()) -> Linearisation:
        """Linearise the network at y on the cases of all calls together."""
        known = values or [()] * len(calls)
        parts = [self.linearise(y, call, own) for call, own in zip(calls, known, strict=True)]
        return parts[0] if len(parts) == 1 else Several(parts)

    def outputs_all(self, y: Tensor, calls: Sequence[Call]) -> Tensor:
        """Compute the outputs at y on the cases of all calls together."""
        outputs = [self.outputs(y, call) for call in calls]
        return outputs[0] if len(outputs) == 1 else joined(outputs)

    def watching(self) -> AbstractContextManager[list["Watched"]]:
        """Note every call of the module inside the block, with the values of a written-out plan's layers."""
        leaves = {id(step.module): step.module for step in self.plan or []}
        return watching(self.module, leaves.values(), self.layout.parameters[0])


@contextmanager
def repeatable() -> Iterator[None]:
    """Run the module without dropout, other randomness being the same every time, and so that it can be differentiated.

    The fused attention kernels have neither a forward mode nor a second derivative.
    """
    with torch.random.fork_rng(), sdpa_kernel(SDPBackend.MATH), WithoutDropout():
        torch.manual_seed(0)
        yield


def chunk_for(y: Tensor) -> int:
    """How many gradients are computed at once, so that they take no more than about a hundred megabytes."""
    return max(1, CHUNK_NUMBERS // y.numel())


def aliases_of(module: nn.Module) -> dict[str, str]:
    """Map every further name of a parameter or buffer that several modules share to its first one.

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


@dataclass
class Watched:
    """One call, and the values of the watched layers in it.

    There are no values if the closure wrote into what the call returned: the last one is no longer the network's.
    """

    call: Call
    values: list[Tensor] = field(default_factory=list)
    version: int = 0  # of the last value, when it was new
    reached: bool = False  # by a gradient of the loss

    def reach(self, _: Tensor) -> None:
        """Note that a gradient of the loss has reached this call."""
        self.reached = True

    def note(self, output: Tensor) -> None:
        """Keep the value of the next layer."""
        self.values.append(output.detach())
        self.version = output._version


@contextmanager
def watching(module: nn.Module, layers: Iterable[nn.Module], like: Tensor) -> Iterator[list[Watched]]:
    """Note every call of the module inside the block; afterwards no hook remains.

    What is left in the end are the calls that the loss depends on, or all of them if its gradient was found by other
    means than a backward pass. Arguments of a call under autocast are kept in the precision of `like`, a parameter.
    """
    seen, inside = list[Watched](), 0

    def begin(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal inside
        inside += 1
        if inside == 1:
            call = Call(args, kwargs)
            seen.append(Watched(call.to(like.dtype) if is_autocast(like.device) else call))

    def note_value(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if inside and torch.is_grad_enabled():
            seen[-1].note(output)

    def end(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        nonlocal inside
        inside -= 1
        if inside == 0 and isinstance(output, Tensor) and output.requires_grad:
            handles.append(output.register_hook(seen[-1].reach))

    handles: list[Any] = [module.register_forward_pre_hook(begin, with_kwargs=True)]
    handles += [layer.register_forward_hook(note_value) for layer in layers]
    handles.append(module.register_forward_hook(end, always_call=True))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
    seen[:] = [watched for watched in seen if watched.reached] or seen
    for watched in seen:
        if watched.values and watched.values[-1]._version != watched.version:
            watched.values.clear()

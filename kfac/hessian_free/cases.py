"""A network and its training cases: loss and gradient on all of them, the metric on one chunk."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from geonpg.errors import require

from ..families import Family
from ..layout import Layout
from ..linearisation import Linearisation
from ..network import Call, Network


@dataclass(frozen=True)
class Evaluation:
    """The regularised loss and the reported error, both per case."""

    loss: float
    error: float


@dataclass(frozen=True)
class Cases:
    """Inputs, targets, and how the error of a case is reported.

    x: the inputs, [cases, ...].
    t: the targets, [cases, ...], as the output family draws them.
    error: the reported error as a function of outputs and targets, (z, t) -> [cases].
    chunks: in how many parts of nearly equal size the cases are taken; memory is needed for one at a time (1 to 50).
    """

    x: Tensor
    t: Tensor
    error: Callable[[Tensor, Tensor], Tensor]
    chunks: int

    def __post_init__(self) -> None:
        same = len(self.x) == len(self.t)
        require(same, f"inputs and targets must be equally many, not {len(self.x)} and {len(self.t)}")
        fits = 1 <= self.chunks <= len(self.x)
        require(fits, f"chunks must lie between 1 and the number of cases {len(self.x)}, not {self.chunks}")

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def parts(self) -> list[tuple[Tensor, Tensor]]:
        """The chunks, as pairs of inputs and targets."""
        return list(zip(self.x.tensor_split(self.chunks), self.t.tensor_split(self.chunks), strict=True))


class Problem:
    """What is minimised: -E log p(t | z) + decay / 2 |weights|^2, as a function of the flat parameters y.

    module: a network whose every trainable parameter belongs to an `nn.Linear`; chains of them are fastest.
    family: the output family, whose parameters the module returns.
    cases: the training cases.
    decay: of the weights, not of the biases (0 to 1e-4).
    """

    def __init__(self, module: nn.Module, family: Family, cases: Cases, decay: float = 0.0) -> None:
        require(decay >= 0, f"decay must not be negative, not {decay}")
        linear = {name: m for name, m in module.named_modules() if type(m) is nn.Linear}
        self.network = Network(module, list(linear))
        self.family, self.cases, self.decay = family, cases, decay
        covered = sum(p.numel() for m in linear.values() for p in m.parameters() if p.requires_grad)
        require(covered == self.layout.size, "Hessian-free needs every trainable parameter in an nn.Linear layer")
        weights = [torch.full_like(p, float(p.ndim > 1)) for p in self.layout.parameters]
        self.decays = decay * self.layout.flatten(weights).detach()

    @property
    def layout(self) -> Layout:
        """Where each parameter lies in the flat vector."""
        return self.network.layout

    def linearise(self, y: Tensor, chunk: int) -> Linearisation:
        """Linearise the network at y on one chunk."""
        return self.network.linearise(y, Call((self.cases.parts[chunk][0],)))

    def penalty(self, y: Tensor) -> float:
        """Compute the weight decay's part of the loss."""
        return 0.5 * float(self.decays @ (y * y)) if self.decay else 0.0

    @torch.no_grad()
    def evaluate(self, y: Tensor, cases: Cases | None = None) -> Evaluation:
        """Compute loss and error at y on all training cases, or on those given; sums are in double precision."""
        cases = self.cases if cases is None else cases
        loss = error = 0.0
        for x, t in cases.parts:
            z = self.network.outputs(y, Call((x,)))
            loss -= float(self.family.log_prob(z, t).double().sum())
            error += float(cases.error(z, t).double().sum())
        return Evaluation(loss / len(cases) + self.penalty(y), error / len(cases))

    @torch.no_grad()
    def gradient(self, y: Tensor) -> Tensor:
        """Compute the gradient of the loss on all cases: [size]."""
        total = self.decays * y
        for chunk, (_, t) in enumerate(self.cases.parts):
            at = self.linearise(y, chunk)
            total.sub_(at.pullback(self.family.score(at.z, t)), alpha=1 / len(self.cases))
        return total

    @torch.no_grad()
    def squared_gradients(self, at: Linearisation, u: Tensor) -> Tensor:
        """Average over cases the squared gradient that u, a cotangent of z, pulls back to: [size]."""
        squares = {}
        for name, (a, d) in at.signals(u).items():
            d2 = d.square()
            prefix = f"{name}." if name else ""
            squares[f"{prefix}weight"] = d2.mT @ a.square() / at.cases
            squares[f"{prefix}bias"] = d2.sum(0) / at.cases
        return self.layout.flatten(squares[name] for name in self.layout.names)


def sparse_initialisation(module: nn.Module, generator: torch.Generator, incoming: int = 15) -> None:
    """Draw `incoming` weights of each unit from a standard normal, and set all else to zero (Martens, 2010)."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            with torch.no_grad():
                layer.weight.zero_()
                few = min(incoming, layer.in_features)
                for row in layer.weight:
                    places = torch.randperm(layer.in_features, generator=generator)[:few]
                    row[places] = torch.randn(few, generator=generator).to(row.dtype)
                if layer.bias is not None:
                    layer.bias.zero_()

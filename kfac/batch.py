"""The data of one update: loss and gradient as functions of the parameters, and the network on the batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .linearisation import Linearisation
from .network import Call, Network
from .taylor import FeedForward

LossOfOutputs = Callable[[Tensor], Tensor]  # outputs [cases, ..., size] -> []


@dataclass(frozen=True)
class Batch:
    """One update's data: the calls of the module that hold it, and loss and gradient as functions of the parameters.

    calls: on which metric, connection and KL are measured.
    evaluate: loss and gradient at a point.
    values: the layers' values at the base point in each of the calls, where they are known.
    linearise: the network at a point where the loss was evaluated last, if that has run the network anyway.
    """

    calls: Sequence[Call]
    evaluate: Callable[[Tensor], tuple[float, Tensor]]
    values: Sequence[Sequence[Tensor]] = ()
    linearise: Callable[[Tensor], Linearisation] | None = None


@dataclass(frozen=True)
class Forward:
    """A written-out network that was run on a batch, `at` the point y."""

    y: Tensor
    x: Tensor
    at: FeedForward


class OutputsBatch:
    """A batch whose loss is a function of the outputs alone: every point takes one forward and one backward sweep.

    every: metric, connection and KL are measured on every such case.
    known: the network at the base point, if it was run there before.
    """

    def __init__(
        self, network: Network, inputs: Tensor, loss: LossOfOutputs, every: int, known: Forward | None = None
    ) -> None:
        self._network, self._inputs, self._loss, self._every = network, inputs, loss, every
        self._latest = known

    def forward(self, y: Tensor) -> Forward:
        """Run the network at y, unless it was run there last."""
        if self._latest is None or self._latest.y is not y:
            self._latest = forward(self._network, y, self._inputs)
        return self._latest

    def evaluate(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Compute loss and gradient at y."""
        at = self.forward(y).at
        with torch.enable_grad():
            z = at.z.detach().requires_grad_()
            loss = self._loss(z)
            (cotangent,) = torch.autograd.grad(loss, z)
        with torch.no_grad():
            gradient = at.pullback(cotangent)
        trained = self._network.layout.trained()
        return loss.detach(), gradient if trained is None else gradient * trained

    def linearise(self, y: Tensor) -> FeedForward:
        """Return the network at y on the cases that curvature is measured on."""
        return self.forward(y).at.thinned(self._every)

    @property
    def call(self) -> Call:
        """The cases that curvature is measured on."""
        return Call((thinned(self._inputs, self._every),))


def forward(network: Network, y: Tensor, inputs: Tensor) -> Forward:
    """Run a written-out network at y."""
    at = network.linearise(y, Call((inputs,)))
    assert isinstance(at, FeedForward)
    return Forward(y, inputs, at)


def thinned(rows: Tensor, every: int) -> Tensor:
    """Take every so many-th row."""
    return rows if every == 1 else rows[::every].contiguous()

"""The data of one update: loss and gradient as functions of the parameters, and the network on the batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .checks import mean_loss
from .linearisation import Linearisation
from .network import Call, Network
from .ranks import Ranks
from .taylor import FeedForward

LossOfOutputs = Callable[[Tensor], Tensor]  # outputs [cases, ..., size] -> []


class Batch(ABC):
    """One update's data as functions of the parameters."""

    @abstractmethod
    def evaluate(self, y: Tensor) -> tuple[float, Tensor]:
        """Compute loss and gradient at y."""

    @abstractmethod
    def linearise(self, y: Tensor) -> Linearisation:
        """Linearise the network at y, where the loss was evaluated last, on the cases that curvature is measured on."""

    @abstractmethod
    def outputs(self, y: Tensor) -> Tensor:
        """Compute the outputs at y on the cases that curvature is measured on."""

    def loss(self, y: Tensor) -> float:
        """Compute the loss at y alone."""
        return self.evaluate(y)[0]


class CallsBatch(Batch):
    """A batch that reaches the network in calls, and whose loss is any function of the parameters.

    calls: on which metric, connection and KL are measured.
    evaluate: loss and gradient at a point.
    start: the point where a step begins.
    values: the layers' values there in each of the calls, where they are known.
    """

    def __init__(
        self,
        network: Network,
        calls: Sequence[Call],
        evaluate: Callable[[Tensor], tuple[float, Tensor]],
        start: Tensor | None = None,
        values: Sequence[Sequence[Tensor]] = (),
    ) -> None:
        self._network, self.calls, self._evaluate, self._start, self.values = network, calls, evaluate, start, values

    def evaluate(self, y: Tensor) -> tuple[float, Tensor]:
        """Compute loss and gradient at y."""
        return self._evaluate(y)

    def linearise(self, y: Tensor) -> Linearisation:
        """Linearise the network at y on the cases of all calls."""
        return self._network.linearise_all(y, self.calls, self.values if y is self._start else ())

    def outputs(self, y: Tensor) -> Tensor:
        """Compute the outputs at y on the cases of all calls."""
        return self._network.outputs_all(y, self.calls)


@dataclass(frozen=True)
class Forward:
    """A written-out network that was run on a batch, `at` the point y."""

    y: Tensor
    x: Tensor
    at: FeedForward


class OutputsBatch(Batch):
    """A batch whose loss is a function of the outputs alone: every point takes one forward and one backward sweep.

    start: the network at the point where a step begins.
    every: metric, connection and KL are measured on every such case.
    """

    def __init__(self, network: Network, start: Forward, loss: LossOfOutputs, every: int, ranks: Ranks) -> None:
        self._network, self._start, self._loss, self._every, self._ranks = network, start, loss, every, ranks
        self._latest, self._thinned = start, Call((start.x,)).thinned(every)
        self.first, self._first_gradient = self._evaluate(start)  # loss and gradient where the step begins

    def _forward(self, y: Tensor) -> Forward:
        """Run the network at y, unless it was run there last, or y is where the step begins."""
        if y is self._start.y:
            return self._start
        if self._latest.y is not y:
            self._latest = forward(self._network, y, self._start.x)
        return self._latest

    def _evaluate(self, at: Forward) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            z = at.at.z.detach().requires_grad_()
            loss = self._loss(z)
            (cotangent,) = torch.autograd.grad(loss, z)
        with torch.no_grad():
            gradient = at.at.pullback(cotangent)
        trained = self._network.layout.trained()
        own = gradient if trained is None else gradient * trained
        return mean_loss(loss.detach(), self._ranks), self._ranks.mean(own)

    def evaluate(self, y: Tensor) -> tuple[float, Tensor]:
        """Compute loss and gradient at y."""
        if y is self._start.y:
            return float(self.first), self._first_gradient
        loss, gradient = self._evaluate(self._forward(y))
        return float(loss), gradient

    def loss(self, y: Tensor) -> float:
        """Compute the loss at y by a forward sweep."""
        if y is self._start.y:
            return float(self.first)
        with torch.no_grad():
            return float(mean_loss(self._loss(self._forward(y).at.z), self._ranks))

    def linearise(self, y: Tensor) -> FeedForward:
        """Return the network at y on the cases that curvature is measured on."""
        return self._forward(y).at.thinned(self._every)

    def outputs(self, y: Tensor) -> Tensor:
        """Compute the outputs at y on the cases that curvature is measured on."""
        return self._network.outputs(y, self._thinned)


def forward(network: Network, y: Tensor, inputs: Tensor) -> Forward:
    """Run a written-out network at y."""
    at = network.linearise(y, Call((inputs,)))
    assert isinstance(at, FeedForward)
    return Forward(y, inputs, at)

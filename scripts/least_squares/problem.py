"""A least-squares problem: a module, the terms of its loss and, where it is known, how far the solution is."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from geonpg.kfac import Network, Term

Function = Callable[[Tensor], Tensor]  # a module as a function of one input
Operator = Callable[..., Tensor]  # of such a function and the rows of one point: the residuals there, [] or [k]


@dataclass(frozen=True)
class LeastSquares:
    """A loss of half the weighted mean square of residuals, summed over terms, as a function of a module's parameters.

    module: in double precision, at its start.
    terms: the residuals.
    error: measures how far the module, as it is, is from the solution; nan where none is known.
    """

    module: nn.Module
    terms: tuple[Term, ...]
    error: Callable[[], float] = lambda: math.nan


Parameters = dict[str, Tensor]


class Residuals:
    """All residuals of a problem as one vector, and its Jacobian, as functions of the flat parameters.

    They are scaled so that half of the sum of their squares is the loss. This is what optimisers of others see.
    """

    def __init__(self, problem: LeastSquares) -> None:
        self.module, self.terms, self._network = problem.module, problem.terms, Network(problem.module)
        self.shapes = {name: p.shape for name, p in self.module.named_parameters()}

    def start(self) -> Tensor:
        """Return the module's parameters as they are, [size]."""
        return torch.cat([p.detach().reshape(-1) for p in self.module.parameters()])

    def write(self, y: Tensor) -> None:
        """Set the module's parameters."""
        nn.utils.vector_to_parameters(y, self.module.parameters())

    def named(self, y: Tensor) -> Parameters:
        """Split the flat parameters."""
        parts = y.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def _at(self, operator: Operator, parameters: Parameters, *rows: Tensor) -> Tensor:
        """The residuals of one point, [k]."""
        return operator(self._network.with_values(parameters), *rows).reshape(-1)

    def vector(self, parameters: Parameters) -> Tensor:
        """Compute all residuals, [n]."""
        found = []
        for term, rows, scale in self._scaled():
            at = vmap(partial(self._at, term.operator), in_dims=(None, *[0] * len(rows)))
            found.append(scale * at(parameters, *rows).reshape(-1))
        return torch.cat(found)

    def jacobian(self, parameters: Parameters) -> Tensor:
        """Compute the derivatives of all residuals by all parameters, [n, size]."""
        found = []
        for term, rows, scale in self._scaled():
            at = vmap(jacrev(partial(self._at, term.operator)), in_dims=(None, *[0] * len(rows)))
            blocks = at(parameters, *rows)
            found.append(scale * torch.cat([block.flatten(0, 1).flatten(1) for block in blocks.values()], 1))
        return torch.cat(found)

    def _scaled(self) -> list[tuple[Term, tuple[Tensor, ...], float]]:
        """Every term with its points, and what its residuals are multiplied by."""
        return [(term, term.rows, math.sqrt(term.weight / len(term.rows[0]))) for term in self.terms]

    def loss(self) -> Tensor:
        """Compute the loss of the module as it is, for autograd."""
        return 0.5 * self.vector(dict(self.module.named_parameters())).square().sum()

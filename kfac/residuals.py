"""Residuals as the model: what a function makes of the network at every point, a differential operator for example."""

import logging
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import FunctionType

import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

from geonpg.errors import Refused, require

from .batch import Batch
from .families import FixedGaussian
from .functional import Functional
from .linearisation import Linearisation, Signals
from .network import Network, chunk_for
from .point import Geometry

log = logging.getLogger(__name__)

Operator = Callable[..., Tensor]  # (u, point, ...) -> [] or [residuals]; u is the module as a function of one input

NEARBY = 0.01  # part of a step at which residuals are compared to find how they bend along it
LEAST_MOVE = 1e-6  # of the parameters that is enough for that, in units of their length


@dataclass(frozen=True)
class Term:
    """One kind of residual: an operator, and the points at which it should vanish.

    operator: the residual or residuals at one point, [] or [k], as a function of u, the module, and of the point;
        derivatives inside it are taken by `torch.func`.
    points: the points, [n, ...], or a tuple of tensors whose rows are the operator's further arguments.
    weight: of this term in the loss, 1/2 sum over terms of weight * mean over points of |residual|^2.
    """

    operator: Operator
    points: Tensor | tuple[Tensor, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        require(callable(self.operator), f"operator must be a function of u and a point, not {self.operator!r}")
        weighs = isinstance(self.weight, int | float) and 0 < self.weight < math.inf
        require(weighs, f"weight must be positive and finite, not {self.weight!r}")
        tensors = isinstance(self.rows, tuple) and all(isinstance(rows, Tensor) and rows.ndim for rows in self.rows)
        require(tensors and len(self.rows) > 0, "points must be a tensor [n, ...], or a tuple of such tensors")
        same = len({len(rows) for rows in self.rows}) == 1
        require(same and len(self.rows[0]) > 0, "a term has at least one point, and as many rows in every tensor")

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """The tensors whose rows are the operator's arguments."""
        return (self.points,) if isinstance(self.points, Tensor) else self.points


def residuals_of(term: Term, u: Callable[..., Tensor], *point: Tensor) -> Tensor:
    """Compute a term's residuals at one point; Refused if they are none."""
    found = term.operator(u, *point)
    real = isinstance(found, Tensor) and found.is_floating_point() and found.numel() > 0
    require(real, "an operator must return its residuals as one tensor of real numbers")
    return found


def made_by(operator: Operator) -> int | None:
    """Return a number that functions share which are defined anew for every step, by the same lines and from data only.

    None for any other operator: what it does may depend on functions or objects that it holds.
    """
    if not isinstance(operator, FunctionType):
        return None
    held = [*(operator.__defaults__ or ()), *(operator.__kwdefaults__ or {}).values()]
    try:
        held += [cell.cell_contents for cell in operator.__closure__ or ()]
    except ValueError:  # a name that has no value yet
        return None
    return hash(operator.__code__) if all(isinstance(each, Tensor | float | int | str) for each in held) else None


class ResidualsBatch(Batch):
    """Residuals of several terms as the outputs of one model, [residuals, 1], and half their mean square as the loss.

    Each is multiplied by the root of its weight in the mean, so that the model is a normal of fixed deviation.

    by_rows: make products with the Jacobian by the matrix itself, where a solver needs that anyway.
    """

    def __init__(self, network: Network, family: FixedGaussian, terms: Sequence[Term], by_rows: bool) -> None:
        self.network, self._family, self._terms, self._by_rows = network, family, terms, by_rows
        self._latest: tuple[Tensor, ResidualsAt] | None = None
        self._singles: list[bool] = []  # whether a term has one residual at a point

    @property
    def operators(self) -> Hashable:
        """What the residuals are made by; None if nothing says that other operators do the same."""
        known = tuple(made_by(term.operator) for term in self._terms)
        return None if None in known else known

    def outputs(self, y: Tensor) -> Tensor:
        """Compute the weighted residuals at y."""
        u = self.network.with_parameters(y)
        with self.network.repeatable():
            found = [vmap(partial(residuals_of, term, u))(*self._points(term, y)) for term in self._terms]
        total = sum(each.numel() for each in found)
        self._singles = [each.numel() == len(each) for each in found]
        weighted = [self._root(term, total) * each.reshape(-1) for term, each in zip(self._terms, found, strict=True)]
        return torch.cat(weighted)[:, None].to(y.dtype)

    def jacobian(self, y: Tensor, total: int) -> Tensor:
        """Compute the derivatives of the weighted residuals, of which `outputs` found `total`: [residuals, size]."""
        with self.network.repeatable():
            found = [self._jacobian(*each, y) for each in zip(self._terms, self._singles, strict=True)]
        return torch.cat([self._root(term, total) * each for term, each in zip(self._terms, found, strict=True)])

    def _jacobian(self, term: Term, single: bool, y: Tensor) -> Tensor:
        def residual(y: Tensor, *point: Tensor) -> Tensor:
            return residuals_of(term, self.network.with_parameters(y), *point)

        points = self._points(term, y)
        # of a single residual the gradient takes one pass, without the second vmap of jacrev
        derivative = grad(lambda y, *point: residual(y, *point).sum()) if single else jacrev(residual)
        found = vmap(derivative, (None, *[0] * len(points)), chunk_size=chunk_for(y))(y, *points)
        return found.reshape(-1, y.numel())

    def _points(self, term: Term, y: Tensor) -> list[Tensor]:
        """The points of a term, in the precision of y."""
        return [rows.to(y.dtype) if rows.is_floating_point() else rows for rows in term.rows]

    def _root(self, term: Term, total: int) -> float:
        return float((term.weight * total / len(term.rows[0])) ** 0.5)

    def linearise(self, y: Tensor) -> "ResidualsAt":
        """Linearise the residuals at y, unless they were linearised there last."""
        if self._latest is None or self._latest[0] is not y:
            self._latest = y, ResidualsAt(self, y, self._by_rows)
        return self._latest[1]

    @torch.no_grad()
    def evaluate(self, y: Tensor) -> tuple[float, Tensor]:
        """Compute loss and gradient at y."""
        at = self.linearise(y)
        return self._loss(at.z), at.pullback(self._family.score(torch.zeros_like(at.z), at.z)) / len(at.z)

    def first_loss(self, y: Tensor) -> float:
        """Compute the loss where a step begins; warn if the parameters do not matter to it."""
        loss, gradient = self.evaluate(y)
        if loss > 0 and not gradient.any():
            log.warning("no residual depends on the parameters: operators must call u, not the module itself")
        return loss

    @torch.no_grad()
    def loss(self, y: Tensor) -> float:
        """Compute the loss at y alone."""
        linearised = self._latest is not None and self._latest[0] is y
        return self._loss(self.linearise(y).z if linearised else self.outputs(y))

    def _loss(self, z: Tensor) -> float:
        return float(self._family.kl(z, torch.zeros_like(z)).mean())


class ResidualsAt(Linearisation):
    """The residuals at one point: their Jacobian, as a matrix or by its products, and their second derivatives.

    by_rows: without it the matrix is made only if its rows are asked for.
    """

    vectorises = True

    def __init__(self, batch: ResidualsBatch, y: Tensor, by_rows: bool) -> None:
        self._batch, self._y, self._by_rows, self.size = batch, y, by_rows, y.numel()
        with torch.no_grad():
            self.z = batch.outputs(y)

    @cached_property
    def _jacobian(self) -> Tensor:
        return self._batch.jacobian(self._y, len(self.z))

    @cached_property
    def _function(self) -> Functional:
        trusts = partial(self._batch.network.trusts_nested, use=self._batch.operators)
        return Functional(self._batch.outputs, self._y, {}, trusts)

    def first(self, v: Tensor) -> Tensor:
        """Compute R = J v."""
        return (self._jacobian @ v)[:, None] if self._by_rows else self._function.first(v)

    @torch.no_grad()
    def second(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute R and S: by one pass of nested forward mode, or by differences where R is known from the matrix.

        In double precision differences take a fifth of the time and keep three digits or more of S, which is but a
        correction; not so along a v too short to move the parameters by more than rounding.
        """
        moved = NEARBY * float(v.norm()) > LEAST_MOVE * (1 + float(self._y.norm()))
        if not self._by_rows or v.dtype != torch.float64 or not moved:
            return self._function.second(v)
        points = torch.stack([self._y + NEARBY * v, self._y - NEARBY * v])
        try:
            ahead, behind = vmap(self._batch.outputs)(points)
        except RuntimeError:  # an operator that writes into a tensor of its own
            ahead, behind = (self._batch.outputs(each) for each in points)
        return self.first(v), (ahead - 2 * self.z + behind) / NEARBY**2

    def pullback(self, u: Tensor) -> Tensor:
        """Compute J^T u."""
        return self._jacobian.mT @ u[:, 0] if self._by_rows else self._function.pullback(u)

    def pullback_each(self, u: Tensor) -> Tensor:
        """Compute the rows of J, each times its own u."""
        return self._jacobian * u

    def pullback_derivative(self, u: Tensor, v: Tensor) -> Tensor:
        """Differentiate J^T u along v."""
        return self._function.pullback_derivative(u, v)

    def signals(self, u: Tensor) -> Signals:
        """Return nothing: operators hide the layers from K-FAC."""
        return {}


def residuals_batch(geometry: Geometry, terms: Sequence[Term]) -> ResidualsBatch:
    """Make a batch of residuals; Refused if the optimiser cannot take them."""
    family, solver = geometry.fisher.family, geometry.solver
    given = len(terms) > 0 and all(isinstance(term, Term) for term in terms)
    require(given, "step_residuals needs at least one Term, and nothing else")
    require(not solver.uses_factors, "residuals need the solver jacobian, cg or dense: K-FAC sees no operators")
    require(geometry.ranks.size == 1, "residuals are not shared over several processes")
    if not isinstance(family, FixedGaussian):
        raise Refused("residuals need the family FixedGaussian")
    return ResidualsBatch(geometry.network, family, terms, solver.uses_rows)

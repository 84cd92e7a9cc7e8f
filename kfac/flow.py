"""What a rule integrates: the natural-gradient flow on a manifold, dy/dt = v(y) = -g^-1 dL."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.func import grad, jacfwd


class StepFailure(ArithmeticError):
    """A number that a step needs is not finite, or a matrix it needs cannot be inverted."""


def solve_dense(matrix: Tensor, b: Tensor) -> Tensor:
    """Compute matrix^-1 b; raise StepFailure if the matrix is singular."""
    x, info = torch.linalg.solve_ex(matrix, b)
    if int(info) != 0:
        raise StepFailure("the metric is singular")
    return x


class Flow(ABC):
    """Velocity, acceleration and the measures of length that a step needs."""

    @abstractmethod
    def velocity(self, y: Tensor) -> Tensor:
        """Compute v = -g^-1 dL at y."""

    @abstractmethod
    def acceleration(self, y: Tensor, v: Tensor) -> Tensor:
        """Compute Gamma(v, v) at y."""

    @abstractmethod
    def velocity_and_acceleration(self, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the velocity at y, and Gamma(v, v) for a v known beforehand, solved together."""

    @abstractmethod
    def speed_squared(self, y: Tensor, v: Tensor) -> float:
        """Compute v^T g v."""

    @abstractmethod
    def divergence(self, y: Tensor, new: Tensor) -> float:
        """Compute KL(y || new)."""

    @abstractmethod
    def loss(self, y: Tensor) -> float:
        """Compute the loss at y."""

    @abstractmethod
    def slope(self, y: Tensor, v: Tensor) -> float:
        """Compute the derivative of the loss along v."""

    def norm(self, y: Tensor, v: Tensor) -> float:
        """Compute the length of v as the damping measures it."""
        return float(v.norm())

    def step_limit(self, y: Tensor, v: Tensor) -> float:
        """Return the longest step along v that stays well inside the manifold."""
        return math.inf

    def remembered_speed_squared(self, y: Tensor, v: Tensor) -> float:
        """Compute v^T g v by the metric that earlier batches left behind; zero if that is not asked for."""
        return 0.0

    def share(self, y: Tensor) -> float:
        """Return the part of its full length that a step from y has earned."""
        return 1.0


P = TypeVar("P")  # what a flow knows of one point


class VisitingFlow(Flow, Generic[P]):
    """A flow that is expensive to ask: it remembers what it found at the base point and at the latest other point.

    The base point is where the step starts. Points are told apart by identity: rules pass on the tensor they are given.
    """

    def __init__(self, base: Tensor) -> None:
        self.base = base
        self._base_point: P | None = None
        self._latest: tuple[Tensor, P] | None = None

    @abstractmethod
    def visit(self, y: Tensor) -> P:
        """Compute what there is to know at y."""

    def at(self, y: Tensor) -> P:
        """Return what there is to know at y; visit it first if it is not remembered."""
        if y is self.base:
            if self._base_point is None:
                self._base_point = self.visit(y)
            return self._base_point
        if self._latest is None or self._latest[0] is not y:
            self._latest = None  # first, so that memory is needed for two points and not for three
            self._latest = (y, self.visit(y))
        return self._latest[1]


class DenseFlow(Flow):
    """A model of few parameters whose metric is a matrix; the connection comes from differentiating it.

    loss: y [size] -> [], differentiable by torch.func.
    metric: y -> [size, size], differentiable by torch.func.
    kl: KL(y || new); by default its quadratic approximation by the metric.
    """

    def __init__(
        self,
        loss: Callable[[Tensor], Tensor],
        metric: Callable[[Tensor], Tensor],
        kl: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        self._loss, self._metric, self._kl = loss, metric, kl
        self._gradient, self._metric_derivative = grad(loss), jacfwd(metric)

    def velocity(self, y: Tensor) -> Tensor:
        """Compute v = -g^-1 dL at y."""
        return -solve_dense(self._metric(y), self._gradient(y))

    def acceleration(self, y: Tensor, v: Tensor) -> Tensor:
        """Compute Gamma(v, v) from the derivative of the metric."""
        derivative = self._metric_derivative(y)  # [i, j, k]: d_k g_ij
        along = torch.einsum("njk,j,k->n", derivative, v, v)
        across = torch.einsum("jkn,j,k->n", derivative, v, v)
        return solve_dense(self._metric(y), along - 0.5 * across)

    def velocity_and_acceleration(self, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute both; a dense model gains nothing by solving them together."""
        return self.velocity(y), self.acceleration(y, v)

    def speed_squared(self, y: Tensor, v: Tensor) -> float:
        """Compute v^T g v."""
        return float(v @ self._metric(y) @ v)

    def divergence(self, y: Tensor, new: Tensor) -> float:
        """Compute KL(y || new), or its quadratic approximation if no KL was given."""
        return float(self._kl(y, new)) if self._kl else 0.5 * self.speed_squared(y, new - y)

    def loss(self, y: Tensor) -> float:
        """Compute the loss at y."""
        return float(self._loss(y))

    def slope(self, y: Tensor, v: Tensor) -> float:
        """Compute the derivative of the loss along v."""
        return float(self._gradient(y) @ v)

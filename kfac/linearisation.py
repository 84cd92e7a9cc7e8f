"""What a network shows of itself at one point on one batch: its outputs and their derivatives.

Shapes in this folder, unless a docstring says otherwise:
    y, v       [size]            a point in parameter space, a direction at it
    z, u, r    [cases, ..., d]   outputs, a cotangent of them, a derivative of them; d parameters of the output family
"""

from abc import ABC, abstractmethod
from functools import cached_property

from torch import Tensor

# For each layer with a Kronecker block: what entered it, and the gradient at what left it.
Signals = dict[str, tuple[Tensor, Tensor]]


class Linearisation(ABC):
    """A network at one point on one batch: its outputs z, and their derivatives with respect to the parameters.

    J is the Jacobian of z; d2z[v, v] is its second derivative along v.
    """

    z: Tensor
    size: int  # how many parameters there are
    vectorises: bool  # whether its passes may run under torch.func.vmap

    @cached_property
    def cases(self) -> int:
        """How many independent cases the batch holds."""
        return self.z[..., 0].numel()

    @abstractmethod
    def first(self, v: Tensor) -> Tensor:
        """Compute R = J v."""

    @abstractmethod
    def second(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Compute R = J v and S = d2z[v, v]."""

    @abstractmethod
    def pullback(self, u: Tensor) -> Tensor:
        """Compute J^T u, summed over the batch: [size]."""

    @abstractmethod
    def pullback_each(self, u: Tensor) -> Tensor:
        """Compute J^T u of every case by itself: [cases, size]."""

    @abstractmethod
    def pullback_derivative(self, u: Tensor, v: Tensor) -> Tensor:
        """Differentiate J^T u along v with u held fixed (paper, algorithm 3): [size]."""

    @abstractmethod
    def signals(self, u: Tensor) -> Signals:
        """Collect what K-FAC needs: each layer's input, and u pulled back to its output."""

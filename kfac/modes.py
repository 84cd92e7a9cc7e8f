"""The derivative of a curve, by forward mode or, where an operation has none, by reverse mode."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jvp

Curve = Callable[[Tensor], Tensor]  # of one real number


def forward_mode(curve: Curve, t: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the value and the derivative of a curve at t."""
    value, derivative, *_ = jvp(curve, (t,), (torch.ones_like(t),))
    return value, derivative


def reverse_mode(curve: Curve) -> Curve:
    """Return the curve's derivative by two backward passes, for operations without a forward mode.

    u^T curve'(t) is one backward pass, and linear in u; its gradient by u is curve'(t).
    """

    def derivative(t: Tensor) -> Tensor:
        with torch.enable_grad():
            t = t.detach().requires_grad_()
            value = curve(t)
            u = torch.zeros_like(value, requires_grad=True)
            along = torch.autograd.grad(value, t, u, create_graph=True)[0]
            return torch.autograd.grad(along, u)[0]

    return derivative

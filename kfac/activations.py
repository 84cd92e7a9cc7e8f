"""Elementwise activations with their first two derivatives, written out."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Activation:
    """An elementwise function with its two derivatives, as functions of (input s, output a)."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]
    bend: Callable[[Tensor, Tensor], Tensor]


def _softplus_slope(s: Tensor, a: Tensor) -> Tensor:
    # torch's softplus is linear above 20, and so are its derivatives
    return torch.where(s > 20, 1.0, s.sigmoid())


def _softplus_bend(s: Tensor, a: Tensor) -> Tensor:
    return torch.where(s > 20, 0.0, s.sigmoid() * (-s).sigmoid())


def _tanh_slope(s: Tensor, a: Tensor) -> Tensor:
    return torch.addcmul(a.new_ones(()), a, a, value=-1)


def _tanh(s: Tensor) -> Tensor:
    # in single precision on a CPU torch's sigmoid takes a sixth of its tanh's time; both are right to 1e-7
    fast = s.dtype is torch.float32 and s.device.type == "cpu"
    return torch.sigmoid(2 * s).mul_(2).sub_(1) if fast else torch.tanh(s)


TANH = Activation(_tanh, _tanh_slope, lambda s, a: -2 * a * _tanh_slope(s, a))
SIGMOID = Activation(torch.sigmoid, lambda s, a: a * (1 - a), lambda s, a: a * (1 - a) * (1 - 2 * a))
RELU = Activation(torch.relu, lambda s, a: (s > 0).to(s.dtype), lambda s, a: torch.zeros_like(s))
SOFTPLUS = Activation(F.softplus, _softplus_slope, _softplus_bend)
IDENTITY = Activation(lambda s: s, lambda s, a: torch.ones_like(s), lambda s, a: torch.zeros_like(s))


def elu(alpha: float) -> Activation:
    """Return the ELU whose negative side saturates at -alpha."""

    def slope(s: Tensor, a: Tensor) -> Tensor:
        if alpha == 1:  # the slope is then nowhere above 1, and there is nothing to choose: a tenth of the time
            return a.clamp(max=0).add_(1)
        return torch.where(s > 0, 1.0, a + alpha)

    return Activation(lambda s: F.elu(s, alpha), slope, lambda s, a: torch.where(s > 0, 0.0, a + alpha))


def activation_of(module: nn.Module) -> Activation | None:
    """Return the written-out form of an activation module, or None.

    A subclass may compute anything, and has none.
    """
    plain: dict[type, Activation] = {
        nn.Tanh: TANH,
        nn.Sigmoid: SIGMOID,
        nn.ReLU: RELU,
        nn.Identity: IDENTITY,
    }
    if type(module) is nn.ELU:
        return elu(module.alpha)
    if type(module) is nn.Softplus and (module.beta, module.threshold) == (1, 20):
        return SOFTPLUS
    return plain.get(type(module))

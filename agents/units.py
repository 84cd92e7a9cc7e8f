"""Units in which large returns are fitted: a critic that is shown 10,000 at once saturates, and stays so.

A Gauss-Newton step of full length trusts the network to be linear all the way to its targets. Where these lie far
beyond what the critic can output, it is fitted to them in units of a power of two, the last layer being divided by the
unit meanwhile: nothing is rounded, and it learns as from returns that much smaller. Returns of ordinary size, those of
normalised rewards among them, have unit one, which changes nothing.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from geonpg.kfac import Constant, NaturalGradient, Ranks

from .outputs import Networks

FAR = 8.0  # targets are large if they are this many times what the critic can output
USUAL = 8.0  # their root mean square in the unit that is chosen, or up to twice that
KEPT = (2.0, 32.0)  # as long as it stays between these the unit stays: curvature is averaged over updates in it


def unit_for(targets: float, reach: float, unit: float) -> float:
    """Choose the unit for targets of this root mean square, after `unit`, if the critic's outputs reach so far."""
    if KEPT[0] <= targets / unit < KEPT[1] if unit > 1 else targets < FAR * reach:
        return unit
    return 2.0 ** max(0, math.floor(math.log2(max(targets, 1.0) / USUAL)))


def reach_of(head: nn.Linear) -> float:
    """The largest output of a linear layer whose inputs lie between -1 and 1."""
    return sum(float(parameter.detach().abs().sum()) for parameter in head.parameters())


@contextmanager
def fitting_units(
    networks: Networks, optimizer: torch.optim.Optimizer, returns: Tensor, ranks: Ranks
) -> Iterator[float]:
    """Let the critic's outputs be in units inside, and yield the unit, which the optimiser's group remembers.

    One for a critic whose last layer is not ours to scale: a user's own, a frozen one, one that another kind of
    optimiser trains, or one whose steps are limited anyway.
    """
    head, group = getattr(networks.policy, "value_net", None), optimizer.param_groups[0]
    free = isinstance(optimizer, NaturalGradient) and type(optimizer.control) is Constant
    if not (free and networks.standard and type(head) is nn.Linear and all(p.requires_grad for p in head.parameters())):
        yield 1.0
        return
    size = float(ranks.mean(returns.square().mean()).sqrt())
    unit = unit_for(size, reach_of(head), group.get("unit", 1.0)) if math.isfinite(size) else 1.0
    if unit == 1.0:
        group.pop("unit", None)
        yield 1.0
        return
    group["unit"] = unit
    try:
        scale(head, 1 / unit)
        yield unit
    finally:
        scale(head, unit)


@torch.no_grad()
def scale(head: nn.Linear, factor: float) -> None:
    """Multiply the outputs of a layer by a factor."""
    for parameter in head.parameters():
        parameter.mul_(factor)

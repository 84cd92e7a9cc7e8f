"""How many threads torch uses while an agent learns."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from .acktr import ACKTR

# Multiply-adds of one pass over a batch below which a second thread costs more than it does: every operation waits
# for it, and on a busy machine until the system lets it run (README's example: 150 s instead of 20).
SMALL = 2**28


def threads_for(agent: "ACKTR") -> int:
    """The agent's own number, or 1 if its updates are small, or what torch uses."""
    if agent.torch_threads is not None:
        return agent.torch_threads
    convolutions = any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in agent.policy.modules())
    work = agent.n_steps * agent.n_envs * sum(weights.numel() for weights in agent.policy.parameters())
    small = agent.device.type == "cpu" and not convolutions and work < SMALL
    return 1 if small else torch.get_num_threads()


@contextmanager
def using_threads(number: int) -> Iterator[None]:
    """Inside, torch uses that many threads; afterwards as many as before."""
    before = torch.get_num_threads()
    if number == before:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)

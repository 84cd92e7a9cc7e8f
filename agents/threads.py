"""How many threads torch uses while an agent learns."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

# Multiply-adds of one pass over a batch below which a second thread costs more than it does: every operation waits
# for it, and on a busy machine until the system lets it run (the example of SB3's interface: 150 s instead of 20).
SMALL = 2**28


def threads_for(network: nn.Module, batch_size: int, device: torch.device) -> int:
    """Choose 1 thread where updates are small, and torch's own number otherwise."""
    convolutions = any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in network.modules())
    work = batch_size * sum(weights.numel() for weights in network.parameters())
    small = device.type == "cpu" and not convolutions and work < SMALL
    return 1 if small else torch.get_num_threads()


@contextmanager
def using_threads(number: int) -> Iterator[None]:
    """Let torch use that many threads inside, and as many as before afterwards."""
    before = torch.get_num_threads()
    if number == before:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)

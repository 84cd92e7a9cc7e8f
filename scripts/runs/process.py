"""Under `torchrun`, the processes that train one agent together; otherwise this process alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from geonpg.kfac import ProcessGroup, Ranks
from geonpg.kfac.ranks import ALONE


@contextmanager
def joined() -> Iterator[Ranks]:
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    dist.init_process_group("gloo")
    try:
        yield ProcessGroup()
    finally:
        dist.destroy_process_group()


def is_first() -> bool:
    """The one that speaks for all."""
    return int(os.environ.get("RANK", "0")) == 0


def cores() -> int:
    """Of this machine, for this process."""
    return max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))

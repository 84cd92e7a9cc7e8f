"""This process: its setup for a run, and the group of processes under `torchrun`."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
import torch.distributed as dist

from geonpg.configs import Settings
from geonpg.cores import usable_cores
from geonpg.kfac import ALONE, ProcessGroup, Ranks


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the process group that torchrun has started; without torchrun, this process is alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    dist.init_process_group("gloo")
    try:
        yield ProcessGroup()
    finally:
        dist.destroy_process_group()


def is_first() -> bool:
    """Return True on rank 0."""
    return int(os.environ.get("RANK", "0")) == 0


def cores() -> int:
    """Return this process's share of the cores that it may use."""
    return max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def keep_memory() -> None:
    """Ask glibc to keep freed memory instead of returning it to the system after every update."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            libc.mallopt(option, 1 << 28)


def prepare(settings: Settings) -> None:
    """Set this process up for a run; the number of torch's threads decides the last bits of sums."""
    torch.set_num_threads(settings.torch_threads)
    keep_memory()

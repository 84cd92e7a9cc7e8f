"""Processes that work on one batch, each on an equal part of it.

A library user never meets them: alone, nothing is shared, and nothing costs anything. In a process group of
torch.distributed every mean over cases is one over all processes, which makes every rank take the same step.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from geonpg.errors import require


class Ranks:
    """One process, which has all cases."""

    rank, size = 0, 1

    def mean(self, x: Tensor) -> Tensor:
        """Average the ranks' tensors."""
        return x

    def number(self, x: float) -> float:
        """Average the ranks' numbers."""
        return x

    def least(self, x: float) -> float:
        """Return the smallest of the ranks' numbers."""
        return x

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the mean and the standard deviation of all ranks' entries."""
        return x.mean(), x.std()

    def drawn(self, draw: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
        """Compute `draw(z)`, a draw per row, with the random numbers that the rows of this rank have among all rows."""
        return draw(z)

    def own(self, rows: Tensor, dim: int = 0) -> Tensor:
        """Return this rank's part, along a dimension, of what belongs to all."""
        return rows

    def collected(self, own: Tensor) -> list[Tensor]:
        """Return every rank's tensor of this shape, in order."""
        return [own]

    def rows(self, own: Tensor) -> list[Tensor]:
        """Return every rank's tensor, in order; they may differ in length."""
        return [own]

    def agree(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite every rank's tensors with those of the first, to the last bit."""

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on at least one rank."""
        return flag

    def gather(self) -> None:
        """Wait until every rank has come here."""

    def shared_out(self, works: Sequence[Callable[[], Tensor]], sizes: Sequence[int]) -> list[Tensor]:
        """Return the results of all works, vectors of these sizes; each work is done by one rank."""
        return [work() for work in works]


ALONE = Ranks()


class ProcessGroup(Ranks):
    """The ranks of the default process group of torch.distributed, each with an equal part of the cases."""

    def __init__(self) -> None:
        require(dist.is_initialized(), "ProcessGroup needs torch.distributed.init_process_group() first")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def mean(self, x: Tensor) -> Tensor:
        """Average the ranks' tensors."""
        return self._sum(x) / self.size

    def _sum(self, x: Tensor) -> Tensor:
        total = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    def number(self, x: float) -> float:
        """Average the ranks' numbers, in double precision."""
        return float(self.mean(torch.tensor(x, dtype=torch.float64)))

    def least(self, x: float) -> float:
        """Return the smallest of the ranks' numbers."""
        smallest = torch.tensor(x, dtype=torch.float64)
        dist.all_reduce(smallest, dist.ReduceOp.MIN)
        return float(smallest)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the mean and the standard deviation of all ranks' entries, in two passes."""
        mean = self.mean(x.mean())
        squares, count = self._sum((x - mean).square().sum()), self.size * x.numel()
        return mean, (squares / (count - 1)).sqrt()

    def drawn(self, draw: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
        """Draw for the rows of all ranks, and keep those of this one."""
        everyone = z.new_zeros(self.size * len(z), *z.shape[1:])
        self.own(everyone).copy_(z)
        return self.own(draw(everyone))

    def own(self, rows: Tensor, dim: int = 0) -> Tensor:
        """Return this rank's part of the rows."""
        part = rows.shape[dim] // self.size
        return rows.narrow(dim, self.rank * part, part)

    def collected(self, own: Tensor) -> list[Tensor]:
        """Gather every rank's tensor of this shape, in order."""
        found = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(found, own.contiguous())
        return found

    def rows(self, own: Tensor) -> list[Tensor]:
        """Gather every rank's tensor, padded to the longest on the way."""
        counts = [int(count) for count in self.collected(torch.tensor(len(own)))]
        padded = own.new_zeros(max(counts), *own.shape[1:])
        padded[: len(own)] = own
        return [rows[:count] for rows, count in zip(self.collected(padded), counts, strict=True)]

    def gather(self) -> None:
        """Wait at a barrier."""
        dist.barrier()

    @torch.no_grad()
    def agree(self, tensors: Sequence[Tensor]) -> None:
        """Broadcast the first rank's tensors."""
        for dtype in dict.fromkeys(x.dtype for x in tensors):  # one message each: in a common dtype, integers round
            alike = [x for x in tensors if x.dtype == dtype]
            together = torch.cat([x.reshape(-1) for x in alike])
            dist.broadcast(together, 0)
            parts = together.split([x.numel() for x in alike])
            for x, part in zip(alike, parts, strict=True):
                x.copy_(part.view_as(x))

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on at least one rank."""
        return self.least(0.0 if flag else 1.0) < 0.5

    def shared_out(self, works: Sequence[Callable[[], Tensor]], sizes: Sequence[int]) -> list[Tensor]:
        """Do every `size`-th work on each rank; one sum, in which others' results are zero, hands them round."""
        whole = torch.zeros(sum(sizes), dtype=torch.float64)
        parts = whole.split(list(sizes))
        for i in range(self.rank, len(works), self.size):
            parts[i].copy_(works[i]())
        dist.all_reduce(whole)
        return list(parts)

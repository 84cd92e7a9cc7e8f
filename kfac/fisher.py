"""K-FAC over a module: which block each parameter belongs to, and what a batch says about them."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import nan, prod

import torch
from torch import Generator, Tensor, nn

from geonpg.errors import choose, require

from .blocks import Block, DiagonalBlock, EigenBlock, KroneckerBlock, LogStdBlock, Statistics
from .factors import is_finite, running_average
from .families import Family, FreeLogStd, Gaussian
from .flow import StepFailure
from .layout import Layout
from .linearisation import Linearisation, Signals
from .ranks import ALONE, Ranks
from .taylor import FeedForward

log = logging.getLogger(__name__)

# Backward passes per observation for the diagonal blocks, where there are any.
DIAGONAL_PROBES = 4


def sampled_targets(family: Family, z: Tensor, generator: Generator, ranks: Ranks) -> Iterator[Tensor]:
    """Yield the score of one draw from the model."""
    yield family.score(z, ranks.drawn(lambda z: family.sample(z, generator), z))


def exact_targets(family: Family, z: Tensor, generator: Generator, ranks: Ranks) -> Iterator[Tensor]:
    """Yield one vector per output dimension; together they are the exact output Fisher."""
    yield from family.fisher_root(z)


TARGETS = {"sampled": sampled_targets, "exact": exact_targets}


@dataclass(frozen=True)
class FactorSettings:
    """How K-FAC is estimated.

    averaging: decay of the running average of the factors, in [0, 1) (0.9 to 0.99).
    update_every: steps between two looks at the factors (1 to 20); in between their inverses stay.
    targets: "sampled" for one draw from the model per case, or "exact" for one backward pass per output dimension.
    max_factor: a layer with more inputs or outputs gets a diagonal factor (1024 to 8192).
    factored_damping: split the damping over both factors of a layer; False adds it to their product, which damps less.
    """

    averaging: float = 0.95
    update_every: int = 1
    targets: str = "sampled"
    max_factor: int = 4096
    factored_damping: bool = True

    def __post_init__(self) -> None:
        choose("Fisher targets", self.targets, TARGETS)
        require(0 <= self.averaging < 1, f"averaging must lie in [0, 1), not {self.averaging}")
        require(self.update_every >= 1, f"update_every must be at least 1, not {self.update_every}")
        require(self.max_factor >= 1, f"max_factor must be at least 1, not {self.max_factor}")


@dataclass(frozen=True)
class FactorMemory:
    """Averaged statistics per block, and the inverses last made of them, with the damping they were made with."""

    statistics: list[Statistics] = field(default_factory=list)
    inverses: list[Statistics] = field(default_factory=list)
    seen: int = 0
    damping: float = 0.0


class KroneckerFisher:
    """The block-diagonal Fisher of a module.

    module: returns the parameters of the family.
    family: the output family.
    settings: how the factors are estimated.
    layout: which parameters it covers; by default all that are trainable.
    ranks: the processes that share each batch.
    """

    def __init__(
        self,
        module: nn.Module,
        family: Family,
        settings: FactorSettings,
        layout: Layout | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.layout = layout or Layout(module)
        self.family, self.settings, self.ranks = family, settings, ranks
        self.blocks = list(blocks_of(module, family, self.layout, settings))
        owner = {id(m): name for name, m in module.named_modules()}
        self.layers = {owner[id(b.layer)]: b for b in self.blocks if isinstance(b, KroneckerBlock)}
        self._calls_checked = False
        self.free = next((b.span for b in self.blocks if isinstance(b, LogStdBlock)), None)

    @torch.no_grad()
    def observe(self, at: Linearisation, generator: Generator) -> list[Statistics]:
        """Compute the statistics of every block on one batch."""
        kronecker, diagonal = self._kronecker(at, generator), self._diagonal(at, generator)
        return [
            kronecker[id(b)] if isinstance(b, KroneckerBlock)
            else (diagonal[b.span],) if isinstance(b, DiagonalBlock)
            else ()
            for b in self.blocks
        ]  # fmt: skip

    def _kronecker(self, at: Linearisation, generator: Generator) -> dict[int, Statistics]:
        """The statistics of every Kronecker block, target by target: all signals together may be large.

        A layer that the network does not call has no curvature: its statistics are zero.
        """
        found: dict[str, list[Tensor]] = {}
        unchecked = not self._calls_checked and not isinstance(at, FeedForward)
        for u in TARGETS[self.settings.targets](self.family, at.z, generator, self.ranks):
            signals = at.signals(u) if self.layers else {}
            if unchecked:
                self._check_calls(at, u, signals)
            for name, block in self.layers.items():
                if name not in signals:
                    continue
                a, d = signals[name]
                gradients = block.observe_gradients(d)
                if name in found:
                    found[name][1] += gradients
                else:
                    found[name] = [block.observe_inputs(a, at.cases), gradients]
        zeros = partial(torch.zeros, dtype=torch.float64, device=at.z.device)
        every = {block: found.get(name) or list(map(zeros, block.shapes)) for name, block in self.layers.items()}
        return {id(block): tuple(map(self.ranks.mean, statistics)) for block, statistics in every.items()}

    def _check_calls(self, at: Linearisation, u: Tensor, signals: Signals) -> None:
        """Give a layer a diagonal block if its weight is used without calling it: its calls do not tell all.

        Once, in the first batch that is finite. A chain that is written out uses no weight otherwise.
        """
        pulled = at.pullback(u)
        self._calls_checked = not self.ranks.any(not is_finite(pulled))
        for name, block in list(self.layers.items()):
            own = pulled[block.span]
            whole = block.explains(own, *signals[name]) if name in signals else not bool((own.abs() > 0).any())
            if self.ranks.any(not whole):
                log.warning("%s is used without calling its layer: its curvature is a diagonal", block.names[0])
                self.make_diagonal(name)

    def make_diagonal(self, layer: str) -> None:
        """Replace a layer's Kronecker block by a diagonal one."""
        block = self.layers.pop(layer)
        self.blocks[self.blocks.index(block)] = DiagonalBlock(block.names, block.span)

    def adopt_diagonals(self, statistics: Sequence[Statistics]) -> None:
        """Make the blocks diagonal that were diagonal when these statistics were saved."""
        for name, block in list(self.layers.items()):
            i = self.blocks.index(block)
            if i < len(statistics) and [x.shape for x in statistics[i]] == [(block.span.stop - block.span.start,)]:
                self.make_diagonal(name)

    def _diagonal(self, at: Linearisation, generator: Generator) -> Tensor:
        """An unbiased estimate of diag(g): independent scores have mean zero, so cross terms cancel."""
        total = torch.zeros(self.layout.size, dtype=torch.float64, device=at.z.device)
        if not any(isinstance(b, DiagonalBlock) for b in self.blocks):
            return total
        for _ in range(DIAGONAL_PROBES):
            (score,) = sampled_targets(self.family, at.z, generator, self.ranks)
            total += self.ranks.mean(at.pullback(score).double()).square()
        return total * (self.ranks.size / (DIAGONAL_PROBES * at.cases))

    def remember(self, memory: FactorMemory, new: list[Statistics]) -> FactorMemory:
        """Return the memory with one more observation; raise StepFailure if that is not finite."""
        if not all(is_finite(x) for statistics in new for x in statistics):
            raise StepFailure("the Fisher factors are not finite")
        old: Sequence[Statistics] = memory.statistics or [()] * len(new)
        averaged = [
            tuple(
                running_average(o[i] if len(o) == len(n) else None, x, memory.seen, self.settings.averaging)
                for i, x in enumerate(n)
            )
            for o, n in zip(old, new, strict=True)
        ]
        return replace(memory, statistics=averaged, seen=memory.seen + 1)

    def invert(self, memory: FactorMemory, damping: float, dtype: torch.dtype) -> FactorMemory:
        """Return the memory with fresh inverses; a block that cannot be inverted keeps its last good one."""
        fresh: list[Statistics] = []
        for i, (block, inverse) in enumerate(zip(self.blocks, self._inverses(memory, damping), strict=True)):
            if inverse is not None:
                fresh.append(tuple(x.to(dtype) for x in inverse))
            elif memory.inverses:
                fresh.append(memory.inverses[i])
                log.warning("the curvature of %s cannot be inverted: its last good inverse stays", block.names[0])
            else:
                raise StepFailure(f"the curvature of {block.names[0]} cannot be inverted")
        return replace(memory, inverses=fresh, damping=damping)

    def _inverses(self, memory: FactorMemory, damping: float) -> list[Statistics | None]:
        """Inverse of every block, computed round-robin over ranks; None if not invertible."""
        works = [partial(flat_inverse, b, s, damping) for b, s in zip(self.blocks, memory.statistics, strict=True)]
        shapes = [block.inverse_shapes for block in self.blocks]
        found = self.ranks.shared_out(works, [sum(map(prod, each)) for each in shapes])
        return [unflattened(flat, each) if is_finite(flat) else None for flat, each in zip(found, shapes, strict=True)]

    def solve(self, memory: FactorMemory, b: Tensor) -> Tensor:
        """Multiply b by the damped inverse: [size] -> [size]."""
        pairs = zip(self.blocks, memory.inverses, strict=True)
        return torch.cat([block.solve(inverse, b[block.span]) for block, inverse in pairs])

    def coverage(self) -> str:
        """Return a table of every trainable parameter and its block."""
        rows = [(name, block.kind) for block in self.blocks for name in block.names]
        shapes = {n: "x".join(map(str, s)) for n, s in zip(self.layout.names, self.layout.shapes, strict=True)}
        wide = max(len("parameter"), *(len(name) for name, _ in rows))
        lines = [f"{'parameter':{wide}}  {'shape':>12}  block"]
        lines += [f"{name:{wide}}  {shapes[name]:>12}  {kind}" for name, kind in rows]
        return "\n".join(lines)


def flat_inverse(block: Block, statistics: Statistics, damping: float) -> Tensor:
    """Invert a block into one vector; all nan if that cannot be done."""
    inverse = block.invert(statistics, damping)
    if inverse is None:
        return torch.full((sum(map(prod, block.inverse_shapes)),), nan, dtype=torch.float64)
    return torch.cat([x.reshape(-1) for x in inverse])


def unflattened(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> Statistics:
    """Split a vector into tensors of these shapes."""
    parts = flat.split([prod(shape) for shape in shapes])
    return tuple(part.view(shape) for part, shape in zip(parts, shapes, strict=True))


def has_kronecker_form(layer: nn.Module) -> bool:
    """Whether a layer has a Kronecker block; subclasses may compute anything, so only torch's own two layers count."""
    if type(layer) is nn.Linear:
        return layer.weight.requires_grad
    if type(layer) is nn.Conv2d:
        plain = layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return plain and layer.weight.requires_grad
    return False


def blocks_of(module: nn.Module, family: Family, layout: Layout, settings: FactorSettings) -> Iterator[Block]:
    """Put every trainable parameter into exactly one block, in the layout's order."""
    kronecker = KroneckerBlock if settings.factored_damping else EigenBlock
    uses = [id(p) for m in module.modules() for p in m._parameters.values() if p is not None]
    for layer_name, layer in module.named_modules():
        prefix = f"{layer_name}." if layer_name else ""
        names = [prefix + n for n, _ in layer.named_parameters(recurse=False) if prefix + n in layout.spans]
        if not names:
            continue
        span = slice(layout.spans[names[0]].start, layout.spans[names[-1]].stop)
        tied = any(uses.count(id(p)) > 1 for p in layer.parameters(recurse=False))
        in_order = names in ([f"{prefix}weight"], [f"{prefix}weight", f"{prefix}bias"])
        if has_kronecker_form(layer) and in_order and not tied:
            yield kronecker(names, span, layer, settings.max_factor)
        elif type(layer) is FreeLogStd and isinstance(family, Gaussian):
            yield LogStdBlock(names, span)
        else:
            yield from (DiagonalBlock([name], layout.spans[name]) for name in names)

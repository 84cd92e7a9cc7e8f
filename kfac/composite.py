"""Families made of other things: products of families, and any distribution at all."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Generator, Tensor
from torch.func import jvp

from geonpg.errors import require

from .families import Family


class Product(Family):
    """Independent distributions side by side: MultiDiscrete and mixed heads.

    A draw holds the parts' draws side by side, in z's dtype; a class index takes one component.

    parts: each family with the number of components of z that belong to it.
    """

    def __init__(self, parts: Sequence[tuple[Family, int]]) -> None:
        require(len(parts) > 0, "a product needs at least one family")
        self.families = [family for family, _ in parts]
        self.sizes = [size for _, size in parts]
        self.draw_sizes = [family.draw_size(size) for family, size in parts]

    def draw_size(self, size: int) -> int:
        """Return the sum of the parts' draw sizes, a class index counting one."""
        return sum(max(n, 1) for n in self.draw_sizes)

    def _split_draw(self, t: Tensor) -> list[Tensor]:
        columns = t.split([max(n, 1) for n in self.draw_sizes], -1)
        return [c if n else c.squeeze(-1) for c, n in zip(columns, self.draw_sizes, strict=True)]

    def _parts(self, *tensors: Tensor) -> Iterator[tuple[Family, tuple[Tensor, ...]]]:
        columns = [x.split(self.sizes, -1) for x in tensors]
        return zip(self.families, zip(*columns, strict=True), strict=True)

    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        """Multiply u by G, which is block-diagonal."""
        return torch.cat([family.fisher(*zu) for family, zu in self._parts(z, u)], -1)

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute C(r, r) of each part."""
        return torch.cat([family.levi_civita(*zr) for family, zr in self._parts(z, r)], -1)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute T(r, r) of each part."""
        return torch.cat([family.cumulant(*zr) for family, zr in self._parts(z, r)], -1)

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        """Compute G^-1 C_alpha(r, r) of each part."""
        return torch.cat([f.raised_connection(zi, ri, alpha) for f, (zi, ri) in self._parts(z, r)], -1)

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw from each part."""
        draws = [family.sample(part, generator) for family, (part,) in self._parts(z)]
        sized = zip(draws, self.draw_sizes, strict=True)
        return torch.cat([(t if n else t.unsqueeze(-1)).to(z.dtype) for t, n in sized], -1)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        """Add up the log-probabilities of the parts."""
        pairs = zip(self._parts(z), self._split_draw(t), strict=True)
        return torch.stack([family.log_prob(part, draw) for (family, (part,)), draw in pairs]).sum(0)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute the score of each part."""
        pairs = zip(self._parts(z), self._split_draw(t), strict=True)
        return torch.cat([family.score(part, draw) for (family, (part,)), draw in pairs], -1)

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        """Yield the parts' vectors in turn, zero outside of their part."""
        parts = z.split(self.sizes, -1)
        for k, family in enumerate(self.families):
            for root in family.fisher_root(parts[k]):
                yield torch.cat([root if i == k else torch.zeros_like(p) for i, p in enumerate(parts)], -1)

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        """Add up the KLs of the parts."""
        return torch.stack([family.kl(*pair) for family, pair in self._parts(z, other)]).sum(0)

    def entropy(self, z: Tensor) -> Tensor:
        """Add up the entropies of the parts."""
        return torch.stack([family.entropy(part) for family, (part,) in self._parts(z)]).sum(0)

    def domain_limit(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> float:
        """Return the smallest limit of the parts."""
        return min(f.domain_limit(zi, ri, alpha) for f, (zi, ri) in self._parts(z, r))


LogProb = Callable[[Tensor, Tensor], Tensor]
Support = Callable[[Tensor], tuple[Tensor, Tensor]]


class Generic(Family):
    """Any distribution, from its scores alone (paper, proposition 1).

    An option for families that are not written out here. Expectations are sums over a support, so they are exact for an
    enumeration; construct it by `enumerated` or `sampled`, or give a support of your own.

    log_prob: log p(t | z) as a function of z [..., d] and a draw per case: [...].
    support: maps z to m draws per case [m, ...] and weights [m, ...] that sum to one: all outcomes with their
        probabilities, or samples with equal weights.
    """

    def __init__(self, log_prob: LogProb, support: Support) -> None:
        self._log_prob = log_prob
        self._support = support

    @classmethod
    def enumerated(cls, log_prob: LogProb, outcomes: Tensor) -> "Generic":
        """Make a family whose draws can take no other values than `outcomes` [m, ...]."""

        def support(z: Tensor) -> tuple[Tensor, Tensor]:
            draws = outcomes.reshape(len(outcomes), *[1] * (z.ndim - 1), *outcomes.shape[1:])
            draws = draws.expand(len(outcomes), *z.shape[:-1], *outcomes.shape[1:])
            return draws, log_prob(z.expand(len(outcomes), *z.shape), draws).exp()

        return cls(log_prob, support)

    @classmethod
    def sampled(cls, log_prob: LogProb, sampler: Callable[[Tensor], Tensor], draws: int) -> "Generic":
        """Make a family whose expectations are means over `draws` draws of `sampler(z)`, one value per case.

        The same z gives the same draws: with others the Fisher would change from one product to the next.
        """

        def support(z: Tensor) -> tuple[Tensor, Tensor]:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                t = torch.stack([sampler(z) for _ in range(draws)])
            return t, torch.full((draws, *z.shape[:-1]), 1 / draws, dtype=z.dtype, device=z.device)

        return cls(log_prob, support)

    def _scores(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draws, their weights [m, ..., 1] and scores [m, ..., d]."""
        t, weights = self._support(z.detach())
        return t, weights.detach().unsqueeze(-1), self.score(z.expand(len(t), *z.shape), t)

    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        """Multiply u by G = E[score score^T]."""
        _, weights, scores = self._scores(z)
        return (weights * scores * (scores * u).sum(-1, keepdim=True)).sum(0)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute T(r, r) = E[score (score^T r)^2]."""
        _, weights, scores = self._scores(z)
        return (weights * scores * (scores * r).sum(-1, keepdim=True) ** 2).sum(0)

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute C(r, r) = E[score (d2 log p[r, r] + (score^T r)^2 / 2)]."""
        t, weights, scores = self._scores(z)
        many = (len(t), *z.shape)

        def along(point: Tensor) -> Tensor:
            return jvp(lambda x: self._log_prob(x, t), (point,), (r.expand(many),))[1]

        second = jvp(along, (z.expand(many),), (r.expand(many),))[1].unsqueeze(-1)
        return (weights * scores * (second + 0.5 * (scores * r).sum(-1, keepdim=True) ** 2)).sum(0)

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        """Multiply C_alpha(r, r) by the pseudo-inverse of G."""
        _, weights, scores = self._scores(z)
        metric = torch.einsum("m...i,m...j->...ij", weights * scores, scores)
        inverse = torch.linalg.pinv(metric, hermitian=True)
        return (inverse @ self.connection(z, r, alpha).unsqueeze(-1)).squeeze(-1)

    def draw_size(self, size: int) -> int:
        """Raise NotImplementedError: draws may have any shape."""
        raise NotImplementedError("a generic family cannot be part of a product: its draws have no fixed size")

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw one element of the support per case, by its weights."""
        t, weights = self._support(z)
        flat = weights.reshape(len(t), -1)
        chosen = torch.multinomial(flat.mT, 1, generator=generator).squeeze(-1)
        rows = t.reshape(len(t), flat.shape[1], -1)
        return rows[chosen, torch.arange(flat.shape[1], device=t.device)].reshape(t.shape[1:])

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute the given log-probability."""
        return self._log_prob(z, t)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        """Differentiate the log-probability with respect to z."""
        with torch.enable_grad():
            point = z.detach().requires_grad_()
            return torch.autograd.grad(self._log_prob(point, t).sum(), point)[0]

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        """Yield the scores of the support times the roots of their weights."""
        _, weights, scores = self._scores(z)
        yield from weights.sqrt() * scores

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        """Average log p_z - log p_other over the support."""
        t, weights = self._support(z)
        ratio = self._log_prob(z.expand(len(t), *z.shape), t) - self._log_prob(other.expand(len(t), *z.shape), t)
        return (weights * ratio).sum(0)

    def entropy(self, z: Tensor) -> Tensor:
        """Average -log p_z over the support."""
        t, weights = self._support(z)
        return -(weights * self._log_prob(z.expand(len(t), *z.shape), t)).sum(0)

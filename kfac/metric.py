"""The Fisher metric of a network, pulled back from its output family; exact on a batch.

g v = E[J^T G R] and g Gamma(v, v) = E[J^T (G S + C(R, R))], with R = J v and S = d2z[v, v].
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from .families import Family
from .linearisation import Linearisation
from .ranks import ALONE, Ranks


@dataclass(frozen=True)
class Bending:
    """The second-order motion of the outputs along a direction v."""

    r: Tensor  # J v
    covector: Tensor  # c = g Gamma(v, v)
    residual: Tensor  # S + G^-1 C(R, R): what a correction a has to match by J a


class Metric:
    """Metric and alpha-connection at a linearised network.

    linearisation: the network at one point on one batch.
    family: the output family, whose parameters the network returns.
    alpha: the connection, in [-1, 1]; 0 Levi-Civita, 1 exponential, -1 mixture.
    ranks: the processes over which expectations are taken.
    """

    def __init__(self, linearisation: Linearisation, family: Family, alpha: float = 0.0, ranks: Ranks = ALONE) -> None:
        self.linearisation, self.family, self.alpha, self.ranks = linearisation, family, alpha, ranks

    def inner(self, r: Tensor, other: Tensor) -> float:
        """Compute E[r^T G other]; for r = J v and other = J w this is the inner product v^T g w."""
        at = self.linearisation
        return self.ranks.number(float((r * self.family.fisher(at.z, other)).sum()) / at.cases)

    @torch.no_grad()
    def product(self, v: Tensor) -> Tensor:
        """Compute g v."""
        return self.ranks.mean(self._own_product(v))

    def _own_product(self, v: Tensor) -> Tensor:
        """g v on this rank's cases."""
        at = self.linearisation
        return at.pullback(self.family.fisher(at.z, at.first(v))) / at.cases

    def quadratic(self, v: Tensor) -> float:
        """Compute v^T g v."""
        r = self.linearisation.first(v)
        return self.inner(r, r)

    @torch.no_grad()
    def bending(self, v: Tensor) -> Bending:
        """Compute how the outputs bend along v."""
        z = self.linearisation.z
        r, s = self.linearisation.second(v)
        lowered = self.family.fisher(z, s) + self.family.connection(z, r, self.alpha)
        return Bending(r, self.pull(lowered), s + self.family.raised_connection(z, r, self.alpha))

    def connection(self, v: Tensor) -> Tensor:
        """Compute c = g Gamma(v, v)."""
        return self.bending(v).covector

    def pull(self, u: Tensor) -> Tensor:
        """Compute E[J^T u]."""
        return self.ranks.mean(self.linearisation.pullback(u) / self.linearisation.cases)

    def rows(self) -> Tensor:
        """Compute a matrix whose product with itself is g, a few rows for each case: [rows, size]."""
        at = self.linearisation
        return torch.cat([at.pullback_each(root) for root in self.family.fisher_root(at.z)]) / at.cases**0.5

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Compute g as a matrix [size, size]: for small models and for tests."""
        at = self.linearisation
        return self.ranks.mean(self._own_products(torch.eye(at.size, dtype=at.z.dtype, device=at.z.device)))

    def _own_products(self, rows: Tensor) -> Tensor:
        """g times each row, at once where every operation of the module can be vectorised, otherwise in turn."""
        if self.linearisation.vectorises:
            try:
                return vmap(self._own_product)(rows)
            except RuntimeError:  # random numbers, writing into a buffer, a recurrent cell
                pass
        return torch.stack([self._own_product(row) for row in rows])

"""Discrete output families, by their logits and by the outputs after the final activation."""

import math
from abc import abstractmethod
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .families import Family, unit


class Categorical(Family):
    """One of d classes: z holds the logits. Draws are class indices [...]."""

    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        """Multiply u by G = diag(p) - p p^T."""
        p = z.softmax(-1)
        return p * (u - (p * u).sum(-1, keepdim=True))

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute C(r, r) = T(r, r) / 2, as for every family in its natural parameters."""
        return 0.5 * self.cumulant(z, r)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute T(r, r) = p (q - p^T q), where q = (r - p^T r)^2."""
        p = z.softmax(-1)
        squares = (r - (p * r).sum(-1, keepdim=True)) ** 2
        return p * (squares - (p * squares).sum(-1, keepdim=True))

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        """Compute (1 - alpha) / 2 (r - p^T r)^2, up to a constant, along which G is zero."""
        p = z.softmax(-1)
        return 0.5 * (1 - alpha) * (r - (p * r).sum(-1, keepdim=True)) ** 2

    def draw_size(self, size: int) -> int:
        """Return 0: a draw is a bare class index."""
        return 0

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw a class index per case."""
        return draw_class(z.softmax(-1), generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute the log-softmax of class t."""
        return z.log_softmax(-1).gather(-1, t.long().unsqueeze(-1)).squeeze(-1)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute the one-hot vector of t minus p."""
        return F.one_hot(t.long(), z.shape[-1]).to(z.dtype) - z.softmax(-1)

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        """Yield sqrt(p_i) (e_i - p) for each class i."""
        p = z.softmax(-1)
        for i in range(z.shape[-1]):
            root = p[..., i].sqrt()
            yield unit(z, i, root) - p * root.unsqueeze(-1)

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        """Compute sum p (log p - log p_other); impossible classes add nothing."""
        log_p = z.log_softmax(-1)
        return (log_p.exp() * zero_where_impossible(log_p, log_p - other.log_softmax(-1))).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        """Compute -sum p log p; impossible classes add nothing."""
        log_p = z.log_softmax(-1)
        return -(log_p.exp() * zero_where_impossible(log_p, log_p)).sum(-1)


def zero_where_impossible(log_p: Tensor, x: Tensor) -> Tensor:
    """Set x to zero for classes with logit -inf (masked actions), which add nothing to an expectation."""
    return x.masked_fill(log_p == -math.inf, 0.0)


class Bernoulli(Family):
    """Independent coins: z holds the logits. Binary cross-entropy."""

    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        """Multiply u by G = diag(p (1 - p))."""
        return bernoulli_variance(z) * u

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute C(r, r) = T(r, r) / 2, as for every family in its natural parameters."""
        return 0.5 * self.cumulant(z, r)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute T(r, r) = p (1 - p) (1 - 2 p) r^2."""
        return bernoulli_variance(z) * (1 - 2 * z.sigmoid()) * r**2

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        """Compute (1 - alpha) / 2 (1 - 2 p) r^2."""
        return 0.5 * (1 - alpha) * (1 - 2 * z.sigmoid()) * r**2

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw 0 or 1 for each component."""
        return torch.bernoulli(z.sigmoid(), generator=generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute minus the binary cross-entropy, summed over components."""
        return (t * z - F.softplus(z)).sum(-1)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute t - p."""
        return t - z.sigmoid()

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        """Yield the unit vectors times sqrt(p (1 - p))."""
        root = bernoulli_variance(z).sqrt()
        yield from (unit(z, i, root[..., i]) for i in range(z.shape[-1]))

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        """Compute the KL from the logits, without forming probabilities that round to 0 or 1."""
        return (z.sigmoid() * (z - other) + F.softplus(other) - F.softplus(z)).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        """Compute the entropy from the logits."""
        return (F.softplus(z) - z * z.sigmoid()).sum(-1)


def bernoulli_variance(z: Tensor) -> Tensor:
    """Compute p (1 - p) from the logit, without cancellation for large z."""
    return z.sigmoid() * (-z).sigmoid()


class MeanFamily(Family):
    """A discrete family by its probabilities, after sigmoid or softmax (paper, proposition 2).

    An option for networks that end in that activation; by logits the geometry is the same and the numbers are safer.
    These coordinates are flat for the mixture connection, so C = -T / 2.
    """

    @abstractmethod
    def inverse_variance(self, z: Tensor) -> Tensor:
        """Compute the diagonal of G."""

    @abstractmethod
    def third_moment(self, z: Tensor) -> Tensor:
        """Compute the diagonal of T."""

    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        """Multiply u by G, which is diagonal."""
        return self.inverse_variance(z) * u

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute C(r, r) = -T(r, r) / 2."""
        return -0.5 * self.cumulant(z, r)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute T(r, r), which is diagonal."""
        return self.third_moment(z) * r**2

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        """Divide C_alpha(r, r) by the diagonal of G."""
        return self.connection(z, r, alpha) / self.inverse_variance(z)

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        """Yield the unit vectors times the root of the diagonal of G."""
        root = self.inverse_variance(z).sqrt()
        yield from (unit(z, i, root[..., i]) for i in range(z.shape[-1]))


class BernoulliMean(MeanFamily):
    """Independent coins: z holds the probabilities, after a sigmoid."""

    def inverse_variance(self, z: Tensor) -> Tensor:
        """Compute 1 / (p (1 - p))."""
        return 1 / (z * (1 - z))

    def third_moment(self, z: Tensor) -> Tensor:
        """Compute (1 - 2 p) / (p (1 - p))^2."""
        return (1 - 2 * z) / (z * (1 - z)) ** 2

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw 0 or 1 for each component."""
        return torch.bernoulli(z, generator=generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute minus the binary cross-entropy, summed over components."""
        return (torch.xlogy(t, z) + torch.special.xlog1py(1 - t, -z)).sum(-1)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute (t - p) / (p (1 - p))."""
        return (t - z) / (z * (1 - z))

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        """Compute the KL from the probabilities."""
        return (torch.xlogy(z, z / other) + torch.xlogy(1 - z, (1 - z) / (1 - other))).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        """Compute the entropy from the probabilities."""
        return -(torch.xlogy(z, z) + torch.xlogy(1 - z, 1 - z)).sum(-1)


class CategoricalMean(MeanFamily):
    """One of d classes: z holds the probabilities, after a softmax; they must sum to one."""

    def inverse_variance(self, z: Tensor) -> Tensor:
        """Compute 1 / p."""
        return 1 / z

    def third_moment(self, z: Tensor) -> Tensor:
        """Compute 1 / p^2."""
        return 1 / z**2

    def draw_size(self, size: int) -> int:
        """Return 0: a draw is a bare class index."""
        return 0

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw a class index per case."""
        return draw_class(z, generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute the log-probability of class t."""
        return z.gather(-1, t.long().unsqueeze(-1)).squeeze(-1).log()

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute the one-hot vector of t over p."""
        return F.one_hot(t.long(), z.shape[-1]).to(z.dtype) / z

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        """Compute sum p log(p / p_other)."""
        return torch.xlogy(z, z / other).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        """Compute -sum p log p."""
        return -torch.xlogy(z, z).sum(-1)


def draw_class(p: Tensor, generator: Generator | None) -> Tensor:
    """Draw a class index per case, from probabilities [..., d]."""
    return torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator).view(p.shape[:-1])

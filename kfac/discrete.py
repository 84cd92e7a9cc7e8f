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
        p = z.softmax(-1)
        return p * (u - (p * u).sum(-1, keepdim=True))

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        return 0.5 * self.cumulant(z, r)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        p = z.softmax(-1)
        squares = (r - (p * r).sum(-1, keepdim=True)) ** 2
        return p * (squares - (p * squares).sum(-1, keepdim=True))

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        p = z.softmax(-1)
        return 0.5 * (1 - alpha) * (r - (p * r).sum(-1, keepdim=True)) ** 2

    def draw_size(self, size: int) -> int:
        return 0

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        return draw_class(z.softmax(-1), generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        return z.log_softmax(-1).gather(-1, t.long().unsqueeze(-1)).squeeze(-1)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        return F.one_hot(t.long(), z.shape[-1]).to(z.dtype) - z.softmax(-1)

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        p = z.softmax(-1)
        for i in range(z.shape[-1]):
            root = p[..., i].sqrt()
            yield unit(z, i, root) - p * root.unsqueeze(-1)

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        log_p = z.log_softmax(-1)
        return (log_p.exp() * zero_where_impossible(log_p, log_p - other.log_softmax(-1))).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        log_p = z.log_softmax(-1)
        return -(log_p.exp() * zero_where_impossible(log_p, log_p)).sum(-1)


def zero_where_impossible(log_p: Tensor, x: Tensor) -> Tensor:
    """x, or zero for a class with logit -inf (a masked action), which adds nothing to an expectation."""
    return x.masked_fill(log_p == -math.inf, 0.0)


class Bernoulli(Family):
    """Independent coins: z holds the logits. Binary cross-entropy."""

    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        return bernoulli_variance(z) * u

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        return 0.5 * self.cumulant(z, r)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        return bernoulli_variance(z) * (1 - 2 * z.sigmoid()) * r**2

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        return 0.5 * (1 - alpha) * (1 - 2 * z.sigmoid()) * r**2

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        return torch.bernoulli(z.sigmoid(), generator=generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        return (t * z - F.softplus(z)).sum(-1)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        return t - z.sigmoid()

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        root = bernoulli_variance(z).sqrt()
        yield from (unit(z, i, root[..., i]) for i in range(z.shape[-1]))

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        return (z.sigmoid() * (z - other) + F.softplus(other) - F.softplus(z)).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        return (F.softplus(z) - z * z.sigmoid()).sum(-1)


def bernoulli_variance(z: Tensor) -> Tensor:
    """p (1 - p) from the logit, without cancellation for large z."""
    return z.sigmoid() * (-z).sigmoid()


class MeanFamily(Family):
    """A discrete family by its probabilities y, after sigmoid or softmax (paper, proposition 2).

    These coordinates are flat for the mixture connection, so C = -T / 2.
    """

    @abstractmethod
    def inverse_variance(self, z: Tensor) -> Tensor:
        """The diagonal of G."""

    @abstractmethod
    def third_moment(self, z: Tensor) -> Tensor:
        """The diagonal of T."""

    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        return self.inverse_variance(z) * u

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        return -0.5 * self.cumulant(z, r)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        return self.third_moment(z) * r**2

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        return self.connection(z, r, alpha) / self.inverse_variance(z)

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        root = self.inverse_variance(z).sqrt()
        yield from (unit(z, i, root[..., i]) for i in range(z.shape[-1]))


class BernoulliMean(MeanFamily):
    """Independent coins: z holds the probabilities, after a sigmoid."""

    def inverse_variance(self, z: Tensor) -> Tensor:
        return 1 / (z * (1 - z))

    def third_moment(self, z: Tensor) -> Tensor:
        return (1 - 2 * z) / (z * (1 - z)) ** 2

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        return torch.bernoulli(z, generator=generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        return (torch.xlogy(t, z) + torch.special.xlog1py(1 - t, -z)).sum(-1)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        return (t - z) / (z * (1 - z))

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        return (torch.xlogy(z, z / other) + torch.xlogy(1 - z, (1 - z) / (1 - other))).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        return -(torch.xlogy(z, z) + torch.xlogy(1 - z, 1 - z)).sum(-1)


class CategoricalMean(MeanFamily):
    """One of d classes: z holds the probabilities, after a softmax; they must sum to one."""

    def inverse_variance(self, z: Tensor) -> Tensor:
        return 1 / z

    def third_moment(self, z: Tensor) -> Tensor:
        return 1 / z**2

    def draw_size(self, size: int) -> int:
        return 0

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        return draw_class(z, generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        return z.gather(-1, t.long().unsqueeze(-1)).squeeze(-1).log()

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        return F.one_hot(t.long(), z.shape[-1]).to(z.dtype) / z

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        return torch.xlogy(z, z / other).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        return -torch.xlogy(z, z).sum(-1)


def draw_class(p: Tensor, generator: Generator | None) -> Tensor:
    """A class index per case, from probabilities [..., d]."""
    return torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator).view(p.shape[:-1])

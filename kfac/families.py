"""Output distributions, seen as manifolds.

A network's output z holds the parameters of a distribution p(t | z). Each family knows its Fisher
metric G(z), its connection C(R, R) with the index lowered, and the cumulant tensor T(R, R) that
turns the Levi-Civita connection into every alpha-connection: C_alpha = C - (alpha / 2) T.

Shapes: z, u, r are [..., d]; leading axes are independent cases. `log_prob`, `kl` and `entropy`
return [...], summed over the components of one case.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Generator, Tensor, nn

from geonpg.errors import require

LOG_2PI = math.log(2 * math.pi)


class Family(ABC):
    """One kind of output distribution p(t | z), with everything that its geometry is made of."""

    @abstractmethod
    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        """Multiply u by the metric G(z)."""

    @abstractmethod
    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute C(r, r) of the Levi-Civita connection, index lowered."""

    @abstractmethod
    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute T(r, r), the third cumulant of the score (Amari-Chentsov tensor)."""

    @abstractmethod
    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        """Compute G^-1 C_alpha(r, r), with a fixed choice along the null directions of G if it has any."""

    def draw_size(self, size: int) -> int:
        """Return how many components a draw has when z has `size`; 0 for a bare class index."""
        return size

    @abstractmethod
    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw once per case."""

    @abstractmethod
    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute log p(t | z)."""

    @abstractmethod
    def score(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute the derivative of log p(t | z) with respect to z."""

    @abstractmethod
    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        """Yield vectors u_j whose outer products sum to G(z)."""

    @abstractmethod
    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        """Compute KL(p_z || p_other)."""

    @abstractmethod
    def entropy(self, z: Tensor) -> Tensor:
        """Compute the entropy of p_z."""

    def connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        """Compute C_alpha(r, r), index lowered: alpha = 0 Levi-Civita, 1 exponential, -1 mixture."""
        c = self.levi_civita(z, r)
        return c if alpha == 0 else c - 0.5 * alpha * self.cumulant(z, r)

    def domain_limit(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> float:
        """Return the largest h for which the geodesic from z along r stays inside the family."""
        return math.inf


def unit(z: Tensor, index: int, value: Tensor) -> Tensor:
    """Return a tensor like z that holds `value` in component `index` and zero elsewhere."""
    column = torch.zeros_like(z)
    column[..., index] = value
    return column


class FixedGaussian(Family):
    """Independent normals with a given standard deviation: z is the mean. Squared loss.

    std: the standard deviation of every component, positive; only its ratio to the errors matters (0.1 to 10).
    """

    def __init__(self, std: float = 1.0) -> None:
        require(std > 0, f"std must be positive, not {std}")
        self.std = std

    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        """Multiply u by G = I / std^2."""
        return u / self.std**2

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        """Return zero: the metric is constant."""
        return torch.zeros_like(r)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        """Return zero: the score is linear in a symmetric draw."""
        return torch.zeros_like(r)

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        """Return zero, whatever alpha is."""
        return torch.zeros_like(r)

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw from N(z, std^2)."""
        return z + self.std * standard_normal(z, generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute the log-density of N(z, std^2), summed over components."""
        return -(0.5 * ((t - z) / self.std) ** 2 + math.log(self.std) + 0.5 * LOG_2PI).sum(-1)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute (t - z) / std^2."""
        return (t - z) / self.std**2

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        """Yield the unit vectors over std."""
        one = torch.ones_like(z[..., 0])
        yield from (unit(z, i, one / self.std) for i in range(z.shape[-1]))

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        """Compute half the squared distance of the means, in units of std."""
        return 0.5 * (((z - other) / self.std) ** 2).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        """Compute the entropy, which does not depend on z."""
        return torch.full_like(z, 0.5 + 0.5 * LOG_2PI + math.log(self.std)).sum(-1)


class Gaussian(Family):
    """Independent normals: z is [mean, log std].

    The log std may come out of the network (state-dependent) or be a free parameter appended by
    `FreeLogStd` (state-independent); the geometry is the same.

    blocks: connect means by themselves and log stds by themselves, each as if the others stood still. Then both go
        straight under alpha = 0; the joint Levi-Civita connection narrows a normal whose mean moves.
    """

    def __init__(self, blocks: bool = False) -> None:
        self.blocks = blocks

    def fisher(self, z: Tensor, u: Tensor) -> Tensor:
        """Multiply u by G = diag(1 / std^2, 2)."""
        _, log_std = z.chunk(2, -1)
        u_mean, u_log = u.chunk(2, -1)
        return torch.cat([u_mean * torch.exp(-2 * log_std), 2 * u_log], -1)

    def levi_civita(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute C(r, r) = (-2 r_mean r_log, r_mean^2) / std^2; by blocks zero: both metrics are constant."""
        if self.blocks:
            return torch.zeros_like(r)
        _, log_std = z.chunk(2, -1)
        r_mean, r_log = r.chunk(2, -1)
        scaled = r_mean * torch.exp(-2 * log_std)
        return torch.cat([-2 * scaled * r_log, scaled * r_mean], -1)

    def cumulant(self, z: Tensor, r: Tensor) -> Tensor:
        """Compute T(r, r) = (4 r_mean r_log / std^2, 2 r_mean^2 / std^2 + 8 r_log^2); by blocks (0, 8 r_log^2)."""
        _, log_std = z.chunk(2, -1)
        r_mean, r_log = r.chunk(2, -1)
        if self.blocks:
            return torch.cat([torch.zeros_like(r_mean), 8 * r_log**2], -1)
        scaled = r_mean * torch.exp(-2 * log_std)
        return torch.cat([4 * scaled * r_log, 2 * scaled * r_mean + 8 * r_log**2], -1)

    def raised_connection(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> Tensor:
        """Compute G^-1 C_alpha(r, r); G is diagonal and never singular."""
        _, log_std = z.chunk(2, -1)
        c_mean, c_log = self.connection(z, r, alpha).chunk(2, -1)
        return torch.cat([c_mean * torch.exp(2 * log_std), 0.5 * c_log], -1)

    def draw_size(self, size: int) -> int:
        """Return half of `size`: z holds a mean and a log std for each component."""
        return size // 2

    def sample(self, z: Tensor, generator: Generator | None = None) -> Tensor:
        """Draw from N(mean, std^2)."""
        mean, log_std = z.chunk(2, -1)
        return mean + log_std.exp() * standard_normal(mean, generator)

    def log_prob(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute the log-density of N(mean, std^2), summed over components."""
        mean, log_std = z.chunk(2, -1)
        return -(0.5 * ((t - mean) * torch.exp(-log_std)) ** 2 + log_std + 0.5 * LOG_2PI).sum(-1)

    def score(self, z: Tensor, t: Tensor) -> Tensor:
        """Compute ((t - mean) / std^2, ((t - mean) / std)^2 - 1)."""
        mean, log_std = z.chunk(2, -1)
        inverse_std = torch.exp(-log_std)
        standardised = (t - mean) * inverse_std
        return torch.cat([standardised * inverse_std, standardised**2 - 1], -1)

    def fisher_root(self, z: Tensor) -> Iterator[Tensor]:
        """Yield the unit vectors, over std for means and times sqrt(2) for log stds."""
        _, log_std = z.chunk(2, -1)
        dims = log_std.shape[-1]
        for i in range(dims):
            yield unit(z, i, torch.exp(-log_std[..., i]))
        for i in range(dims):
            yield unit(z, dims + i, torch.full_like(log_std[..., i], math.sqrt(2)))

    def kl(self, z: Tensor, other: Tensor) -> Tensor:
        """Compute the KL in closed form; tiny steps keep their digits."""
        (mean, log_std), (mean2, log_std2) = z.chunk(2, -1), other.chunk(2, -1)
        shift = (mean - mean2) * torch.exp(-log_std2)
        change = log_std - log_std2
        # expm1(2x) - 2x keeps its digits for tiny steps, where exp(2x) - 1 - 2x loses them all
        return 0.5 * (shift**2 + torch.expm1(2 * change) - 2 * change).sum(-1)

    def entropy(self, z: Tensor) -> Tensor:
        """Compute the entropy, which depends on the log std alone."""
        _, log_std = z.chunk(2, -1)
        return (log_std + 0.5 + 0.5 * LOG_2PI).sum(-1)

    def domain_limit(self, z: Tensor, r: Tensor, alpha: float = 0.0) -> float:
        """Return where the variance would become infinite (alpha > 0) or zero (alpha < 0).

        Exact for alpha = 1 and -1, whose geodesics are straight in the precision and in the moments,
        and for every alpha when only the log std moves.
        """
        _, log_std = z.chunk(2, -1)
        r_mean, r_log = r.chunk(2, -1)
        if alpha > 0:
            inverse_limit = 2 * r_log
        elif alpha < 0:
            speed = 0 * r_mean if self.blocks else r_mean**2 * torch.exp(-2 * log_std)
            inverse_limit = torch.sqrt(r_log**2 + speed) - r_log
        else:
            return math.inf
        fastest = abs(alpha) * float(inverse_limit.max())
        return 1 / fastest if fastest > 0 else math.inf


class FreeLogStd(nn.Module):
    """A last layer that appends a free, state-independent log std to the mean: [..., d] -> [..., 2d].

    dims: how many components the mean has.
    initial: where the log std starts (-1 to 0).
    """

    def __init__(self, dims: int, initial: float = 0.0) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.full((dims,), float(initial)))

    def forward(self, mean: Tensor) -> Tensor:
        """Append the log std to the mean."""
        return with_log_std(mean, self.log_std)


def with_log_std(mean: Tensor, log_std: Tensor) -> Tensor:
    """Append a free log std to the mean."""
    return torch.cat([mean, log_std.expand_as(mean)], -1)


def standard_normal(like: Tensor, generator: Generator | None) -> Tensor:
    """Draw standard normals in the shape, dtype and device of `like`."""
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)

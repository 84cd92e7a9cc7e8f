"""Brute force: the Fisher matrix and its connection of a model, from its probabilities alone.

Nothing here uses geonpg's formulas. Expectations are sums over all outcomes, or Gauss-Hermite
quadrature, which is exact for the polynomials of a Gaussian's scores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Categorical, Normal
from torch.func import functional_call, grad, jacfwd, vmap

from geonpg.kfac.layout import Layout


@dataclass(frozen=True)
class Model:
    """p(t | z) for one case: log-probability, and a weighted set of outcomes that may depend on z."""

    log_prob: Callable[[Tensor, Tensor], Tensor]
    outcomes: Callable[[Tensor], tuple[Tensor, Tensor]]


def normal_outcomes(mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    weights = weights / weights.sum()
    dims = len(mean)
    grid = torch.tensor(list(product(nodes, repeat=dims)), dtype=mean.dtype)
    mass = torch.tensor([np.prod(w) for w in product(weights, repeat=dims)], dtype=mean.dtype)
    return mean + std * grid, mass


def fixed_gaussian(std: float) -> Model:
    return Model(
        lambda z, t: Normal(z, std, validate_args=False).log_prob(t).sum(),
        lambda z: normal_outcomes(z, torch.full_like(z, std)),
    )


def gaussian() -> Model:
    def log_prob(z: Tensor, t: Tensor) -> Tensor:
        mean, log_std = z.chunk(2)
        return Normal(mean, log_std.exp(), validate_args=False).log_prob(t).sum()

    return Model(log_prob, lambda z: normal_outcomes(z.chunk(2)[0], z.chunk(2)[1].exp()))


def categorical() -> Model:
    return Model(
        lambda z, one_hot: (z.log_softmax(0) * one_hot).sum(),
        lambda z: (torch.eye(len(z), dtype=z.dtype), z.softmax(0)),
    )


def bernoulli() -> Model:
    def outcomes(z: Tensor) -> tuple[Tensor, Tensor]:
        t = torch.tensor(list(product([0.0, 1.0], repeat=len(z))), dtype=z.dtype)
        p = z.sigmoid()
        return t, (t * p + (1 - t) * (1 - p)).prod(1)

    return Model(lambda z, t: Bernoulli(logits=z, validate_args=False).log_prob(t).sum(), outcomes)


def mixed() -> Model:
    """A class out of two, one coin, and one normal, side by side: z has 2 + 1 + 2 components."""

    def log_prob(z: Tensor, t: Tensor) -> Tensor:
        first = Categorical(logits=z[:2], validate_args=False).log_prob(t[0])
        second = Bernoulli(logits=z[2], validate_args=False).log_prob(t[1])
        return first + second + Normal(z[3], z[4].exp(), validate_args=False).log_prob(t[2])

    def outcomes(z: Tensor) -> tuple[Tensor, Tensor]:
        values, weights = normal_outcomes(z[3:4], z[4:5].exp())
        rows, masses = [], []
        for k, coin in product(range(2), range(2)):
            p = z[2].sigmoid()
            mass = z[:2].softmax(0)[k] * (p if coin else 1 - p)
            rows.append(torch.cat([torch.tensor([k, coin], dtype=z.dtype).expand(len(values), 2), values], 1))
            masses.append(mass * weights)
        return torch.cat(rows), torch.cat(masses)

    return Model(log_prob, outcomes)


class Truth:
    """Dense metric and connection of a network with an output model, by differentiating the metric."""

    def __init__(self, module: nn.Module, model: Model, x: Tensor) -> None:
        self.layout, self.model, self.x = Layout(module), model, x
        self.network = lambda y, case: functional_call(module, self.layout.named(y), (case.unsqueeze(0),)).squeeze(0)
        self.y = self.layout.read()

    def _scores(self, y: Tensor, case: Tensor) -> tuple[Tensor, Tensor]:
        draws, weights = self.model.outcomes(self.network(y, case))
        score = grad(lambda p, t: self.model.log_prob(self.network(p, case), t))
        return vmap(score, (None, 0))(y, draws), weights

    def metric(self, y: Tensor) -> Tensor:
        total = torch.zeros(len(y), len(y), dtype=y.dtype)
        for case in self.x:
            scores, weights = self._scores(y, case)
            total = total + torch.einsum("m,mi,mj->ij", weights, scores, scores)
        return total / len(self.x)

    def cumulant(self, y: Tensor) -> Tensor:
        total = torch.zeros(len(y), len(y), len(y), dtype=y.dtype)
        for case in self.x:
            scores, weights = self._scores(y, case)
            total = total + torch.einsum("m,mi,mj,mk->ijk", weights, scores, scores, scores)
        return total / len(self.x)

    def christoffel(self) -> Tensor:
        """Gamma_{n,ij} of the Levi-Civita connection."""
        d = jacfwd(self.metric)(self.y)  # [i, j, k]: d_k g_ij
        return 0.5 * (d + d.transpose(1, 2) - d.permute(2, 0, 1))

    def connection(self, alpha: float) -> Tensor:
        """Gamma_{n,ij} of the alpha-connection."""
        return self.christoffel() - 0.5 * alpha * self.cumulant(self.y)

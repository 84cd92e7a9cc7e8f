"""Variational inference by a Gaussian in its mean and precision matrix, where a step can leave the cone.

The precision matrix L of the approximation must be positive definite. A straight step L + h D need not be; the
geodesic's, L + h D + h^2 (D L^-1 D + L v v^T L) / 2 for a velocity v of the mean, is for every h.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from geonpg.kfac import RULES, Constant, DenseFlow, StepFailure

SIZE, OBSERVATIONS, NODES = 3, 20, 100
PRIOR = 3.0  # deviation of every weight
FREEDOM, NOISE, WILD = 2.0, 0.3, 0.25  # of Student's noise: degrees, scale, and the share of wild observations
STEPS = 30
RATES = (0.1, 0.3, 0.5, 1.0)
STARTS = {"narrow": 0.3, "wide": 1.0}  # deviation of the first approximation, whose mean is zero

LogLikelihood = Callable[[Tensor, Tensor], Tensor]  # of a linear predictor and what was observed


def logistic(f: Tensor, t: Tensor) -> Tensor:
    """Classes t = -1 or 1; concave."""
    return logsigmoid(t * f)


def robust(f: Tensor, t: Tensor) -> Tensor:
    """Student's noise, which forgives wild observations; not concave."""
    return -0.5 * (FREEDOM + 1) * torch.log1p(((t - f) / NOISE) ** 2 / FREEDOM)


LIKELIHOODS: dict[str, LogLikelihood] = {"logistic": logistic, "robust": robust}


def basis(size: int) -> Tensor:
    """Symmetric matrices whose combinations are all of them: [count, size, size]."""
    rows, columns = torch.tril_indices(size, size)
    found = torch.zeros(len(rows), size, size, dtype=torch.float64)
    count = torch.arange(len(rows))
    found[count, rows, columns] = found[count, columns, rows] = 1.0
    return found


@dataclass(frozen=True)
class Inference:
    """A Bayesian regression on a few inputs a [n, size] with observations t [n].

    The loss is the negative evidence bound; a point is the mean, then the coordinates of the precision matrix. The
    likelihood depends on one linear predictor per observation, so its expectation is an integral over a line.
    """

    likelihood: LogLikelihood
    a: Tensor
    t: Tensor
    matrices: Tensor  # the basis of precisions

    def split(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean [size] and precision [size, size]."""
        size = self.a.shape[1]
        return y[:size], torch.einsum("k,kij->ij", y[size:], self.matrices)

    def point(self, mean: Tensor, precision: Tensor) -> Tensor:
        """Return the coordinates of a mean and a precision, which `split` takes apart."""
        rows, columns = torch.tril_indices(*precision.shape)
        return torch.cat([mean, precision[rows, columns]])

    def start(self, deviation: float) -> Tensor:
        """A round approximation about zero."""
        size = self.a.shape[1]
        return self.point(torch.zeros(size).double(), torch.eye(size).double() / deviation**2)

    def loss(self, y: Tensor) -> Tensor:
        """The divergence from the prior less the expected log-likelihood."""
        mean, precision = self.split(y)
        covariance, size = torch.linalg.inv(precision), len(mean)
        spread = covariance.trace() + mean @ mean
        logdet = torch.linalg.slogdet(precision).logabsdet
        divergence = 0.5 * (spread / PRIOR**2 - size + size * math.log(PRIOR**2) + logdet)
        return divergence - self.expected(self.a @ mean, torch.einsum("ni,ij,nj->n", self.a, covariance, self.a))

    def expected(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Sum the expected log-likelihoods under normal predictors, by Gauss-Hermite quadrature."""
        z, w = (torch.from_numpy(each) for each in np.polynomial.hermite.hermgauss(NODES))
        f = mean[:, None] + torch.sqrt(2 * variance)[:, None] * z
        return (self.likelihood(f, self.t[:, None]) * w).sum() / math.sqrt(math.pi)

    def metric(self, y: Tensor) -> Tensor:
        """The Fisher matrix of the approximation."""
        _, precision = self.split(y)
        covariance = torch.linalg.inv(precision)
        turned = torch.einsum("ij,kjl->kil", covariance, self.matrices)
        return torch.block_diag(precision, 0.5 * torch.einsum("kij,lji->kl", turned, turned))

    def is_inside(self, y: Tensor) -> bool:
        """Whether the precision is positive definite."""
        return bool(torch.isfinite(y).all()) and int(torch.linalg.cholesky_ex(self.split(y)[1]).info) == 0


def make_inference(name: str, seed: int) -> Inference:
    """Draw weights, inputs and observations."""
    draw = Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    a, chance = normal(OBSERVATIONS, SIZE), torch.rand(OBSERVATIONS, generator=draw, dtype=torch.float64)
    f = a @ normal(SIZE)
    if name == "logistic":
        t = torch.where(chance < torch.sigmoid(2 * f), 1.0, -1.0).double()
    else:
        t = f + torch.where(chance < WILD, 10 * NOISE, NOISE) * normal(OBSERVATIONS)
    return Inference(LIKELIHOODS[name], a, t, basis(SIZE))


@dataclass(frozen=True)
class Trial:
    """How a rule with a constant step went: whether and when it left the cone, and its last loss inside."""

    problem: str
    start: str
    rule: str
    rate: float
    seed: int
    left: int
    steps: int
    loss: float


def infer(name: str, start: str, rule: str, rate: float, seed: int) -> Trial:
    """Take constant steps until the cone is left, or there were enough of them."""
    problem, last, step = make_inference(name, seed), None, 0
    flow, control, y = DenseFlow(problem.loss, problem.metric), Constant(rate), problem.start(STARTS[start])
    while step < STEPS:
        try:
            move, last = RULES[rule].step(flow, y, control, last)
        except StepFailure:
            break
        if not move.accepted or not problem.is_inside(move.y):
            break
        y, step = move.y, step + 1
    return Trial(name, start, rule, rate, seed, int(step < STEPS), step, float(problem.loss(y)))

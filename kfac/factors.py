"""The algebra of Kronecker factors. Knows tensors, not modules.

A factor is a matrix [d, d] or, where d is too large for one, its diagonal [d]. Factors are kept and
inverted in float64 whatever the network's dtype.
"""

import math

import torch
from torch import Tensor

# Relative ridges tried in turn when a factor will not factorise.
JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)


def append_ones(x: Tensor) -> Tensor:
    """Append the homogeneous coordinate: [n, d] -> [n, d + 1]."""
    return torch.cat([x, x.new_ones(len(x), 1)], 1)


def second_moment(x: Tensor, count: int, diagonal: bool = False) -> Tensor:
    """Sum x x^T over the rows and divide by `count`: [n, d] -> [d, d], or its diagonal [d]."""
    moment = x.square().sum(0) if diagonal else x.mT @ x
    return moment.double() / count


def running_average(old: Tensor | None, new: Tensor, seen: int, decay: float) -> Tensor:
    """Average exponentially, starting as a plain mean, so that the first value has no bias.

    seen: how many values `old` has averaged.
    """
    keep = min(decay, seen / (seen + 1))
    return new if old is None else keep * old + (1 - keep) * new


def is_finite(x: Tensor) -> bool:
    """Whether all entries are finite; if their sum is they are: no infinity or nan can cancel out of it."""
    return math.isfinite(float(x.sum())) or bool(x.isfinite().all())  # finite entries may have an infinite sum


def trace(factor: Tensor) -> float:
    """Compute the trace of a factor."""
    return float((factor if factor.ndim == 1 else factor.diagonal()).sum())


def factored_damping(a: Tensor, d: Tensor, damping: float) -> tuple[float, float]:
    """Split the damping over both factors.

    The parts are (pi sqrt(damping), sqrt(damping) / pi) with pi^2 = (tr A / dim A) / (tr D / dim D).
    """
    mean_a, mean_d = trace(a) / len(a), trace(d) / len(d)
    # a layer that nothing enters or leaves has no scale of its own
    pi = math.sqrt(mean_a / mean_d) if mean_a > 0 and mean_d > 0 else 1.0
    pi = min(max(pi, 1e-6), 1e6)
    return pi * math.sqrt(damping), math.sqrt(damping) / pi


def damped_inverse(factor: Tensor, ridge: float) -> Tensor | None:
    """Compute (factor + ridge I)^-1, or None if no jitter makes it positive definite.

    Cholesky reads one triangle only, so rounding cannot make the inverse asymmetric; and unlike an
    eigendecomposition it cannot fail to converge.
    """
    if factor.ndim == 1:
        damped = factor + ridge
        return 1 / damped if is_finite(damped) and float(damped.min()) > 0 else None
    for jitter in JITTERS:
        more = ridge if jitter == 0 else ridge + jitter * max(trace(factor) / len(factor), ridge)
        damped = factor.clone()
        damped.diagonal().add_(more)
        chol, info = torch.linalg.cholesky_ex(damped)
        if int(info) == 0:
            return torch.cholesky_inverse(chol)
    return None


def eigen(factor: Tensor) -> tuple[Tensor, Tensor]:
    """Compute a factor's eigenvalues, none below zero, and its eigenvectors; those of a diagonal are ones."""
    if factor.ndim == 1:
        return factor.clamp(min=0), torch.ones_like(factor)
    values, vectors = torch.linalg.eigh(factor)
    return values.clamp(min=0), vectors


def transposed(factor: Tensor) -> Tensor:
    """Transpose a matrix; a diagonal is its own transpose."""
    return factor if factor.ndim == 1 else factor.mT


def condition_number(factor: Tensor, ridge: float) -> float:
    """Divide the largest by the smallest eigenvalue of factor + ridge I."""
    values = factor if factor.ndim == 1 else torch.linalg.eigvalsh(factor)
    smallest = max(float(values.min()), 0.0) + ridge  # rounding may leave it a little below zero
    return (float(values.max()) + ridge) / smallest if smallest > 0 else math.inf


def kron_apply(d: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """Compute D V A for V [o, i], with either factor a matrix or a diagonal."""
    left = d.unsqueeze(1) * v if d.ndim == 1 else d @ v
    return left * a if a.ndim == 1 else left @ a

"""One update: a step of the policy and a few of the critic, on a whole rollout."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.optim import Optimizer

from geonpg.kfac import KlSearch, NaturalGradient, Ranks, TrustRegion

from .batches import UpdateBatch
from .outputs import Networks, draws_of
from .units import fitting_units

SHORTEST = 0.01  # of annealed steps, as a share of the first


def limit_step(optimizer: NaturalGradient, target_kl: float, left: float) -> None:
    """Set the trust region for a run of which this share is left, unless the user has put another controller there."""
    if isinstance(optimizer.control, TrustRegion | KlSearch):
        target = target_kl * max(left, SHORTEST) ** 2  # a step's length is the root of its KL
        optimizer.control = replace(optimizer.control, max_kl=target)


def standardised(advantages: Tensor, floor: float, ranks: Ranks) -> Tensor:
    """Give advantages mean 0 and deviation 1, or less where their own deviation is below the floor."""
    mean, deviation = ranks.moments(advantages)
    return (advantages - mean) / (deviation.clamp(min=floor) + 1e-8)


def improve_policy(
    networks: Networks,
    optimizer: NaturalGradient,
    batch: UpdateBatch,
    advantages: Tensor,
    ent_coef: float,
    ranks: Ranks,
) -> tuple[float, float]:
    """Make one step of the policy; return the loss and the entropy before it."""
    draws, family = draws_of(networks.policy, batch.actions), networks.family
    start: list[float] = []

    def surrogate(z: Tensor) -> Tensor:
        ratio = torch.exp(family.log_prob(z, draws) - batch.old_log_prob)
        gain, entropy = (ratio * advantages).mean(), family.entropy(z).mean()
        start.extend([-float(gain.detach()), float(entropy.detach())])
        return -gain - ent_coef * entropy

    optimizer.step_outputs(batch.inputs, surrogate, batch.actor)
    return ranks.number(start[0]), ranks.number(start[1])


def fit_critic(
    networks: Networks,
    optimizer: Optimizer,
    batch: UpdateBatch,
    steps: int,
    vf_coef: float,
    max_grad_norm: float,
    ranks: Ranks,
) -> float:
    """Make steps of the critic towards the returns; return the mean squared error before the first one.

    vf_coef, max_grad_norm: for an optimiser that is no natural gradient.
    """
    errors: list[float] = []

    def error(z: Tensor) -> Tensor:
        found = (z - targets).square().mean()
        errors.append(float(found.detach()))
        return found

    def regression() -> float:
        optimizer.zero_grad()
        loss = vf_coef * error(networks.critic(seen))
        backward(loss)
        clip_shared_gradients(networks.critic_parameters, max_grad_norm, ranks)
        return float(loss.detach())

    seen = batch.inputs if batch.critic is None else batch.critic.x
    with fitting_units(networks, optimizer, batch.returns, ranks) as unit:
        targets, known = batch.returns.unsqueeze(1) / unit, batch.critic if unit == 1 else None
        for _ in range(steps):
            if isinstance(optimizer, NaturalGradient):
                # half the squared error is a Gaussian's negative log-likelihood, whose Fisher matrix is Gauss-Newton's
                optimizer.step_outputs(seen, lambda z: 0.5 * error(z), known)
                known = None
            else:
                optimizer.step(regression)
    return ranks.number(errors[0]) * unit**2


def clip_shared_gradients(parameters: Sequence[Tensor], max_norm: float, ranks: Ranks) -> None:
    """Make every gradient the mean over the ranks, and all of them together no longer than `max_norm`."""
    for parameter in parameters:
        if parameter.grad is not None:  # a frozen one has none
            parameter.grad = ranks.mean(parameter.grad)
    torch.nn.utils.clip_grad_norm_(parameters, max_norm)


def backward(loss: Tensor) -> None:
    """Compute gradients, unless every parameter that the loss depends on is frozen."""
    if loss.requires_grad:
        loss.backward()

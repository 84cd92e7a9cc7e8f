"""One update: a step of the policy and a few of the critic, on a whole rollout."""

from collections.abc import Sequence

import torch
from stable_baselines3.common.type_aliases import PyTorchObs, RolloutBufferSamples
from torch import Tensor
from torch.optim import Optimizer

from geonpg.kfac import NaturalGradient, Ranks

from .outputs import Networks, draws_of
from .units import fitting_units


def standardised(advantages: Tensor, floor: float, ranks: Ranks) -> Tensor:
    """Give advantages mean 0 and deviation 1, or less where their own deviation is below the floor."""
    mean, deviation = ranks.moments(advantages)
    return (advantages - mean) / (deviation.clamp(min=floor) + 1e-8)


def improve_policy(
    networks: Networks,
    optimizer: NaturalGradient,
    inputs: PyTorchObs,
    batch: RolloutBufferSamples,
    advantages: Tensor,
    ent_coef: float,
    ranks: Ranks,
) -> tuple[float, float]:
    """Make one step of the policy; return the loss and the entropy before it."""
    draws, family = draws_of(networks.policy, batch.actions), networks.family
    start: list[float] = []

    def surrogate() -> Tensor:
        optimizer.zero_grad()
        z = networks.actor(inputs)
        ratio = torch.exp(family.log_prob(z, draws) - batch.old_log_prob)
        gain, entropy = (ratio * advantages).mean(), family.entropy(z).mean()
        start.extend([-float(gain.detach()), float(entropy.detach())])
        loss = -gain - ent_coef * entropy
        backward(loss)
        return loss

    optimizer.step(surrogate)
    return ranks.number(start[0]), ranks.number(start[1])


def fit_critic(
    networks: Networks,
    optimizer: Optimizer,
    inputs: PyTorchObs,
    returns: Tensor,
    steps: int,
    vf_coef: float,
    max_grad_norm: float,
    ranks: Ranks,
) -> float:
    """Make steps of the critic towards the returns; return the mean squared error before the first one.

    vf_coef, max_grad_norm: for an optimiser that is no natural gradient.
    """
    natural = isinstance(optimizer, NaturalGradient)
    errors: list[float] = []

    def regression() -> float:
        optimizer.zero_grad()
        error = (networks.critic(inputs) - returns.unsqueeze(1) / unit).square().mean()
        errors.append(float(error.detach()))
        # half the squared error is a Gaussian's negative log-likelihood, whose Fisher matrix is Gauss-Newton's
        loss = 0.5 * error if natural else vf_coef * error
        backward(loss)
        if not natural:
            clip_shared_gradients(networks.critic_parameters, max_grad_norm, ranks)
        return float(loss.detach())

    with fitting_units(networks, optimizer, returns, ranks) as unit:
        for _ in range(steps):
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

"""A seeded stand-in for a batch of reinforcement learning: a continuous bandit with noisy rewards.

States are correlated like a robot's observations, the reward of an action falls with its distance to
an unknown function of the state, and noise of three times its spread stands for the rest of the
return. Gradient noise and the geometry of the policy are those of a real update, without physics.
"""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from geonpg.kfac import FreeLogStd, Gaussian

STATES, ACTIONS, HIDDEN, CASES, NOISE = 17, 6, 64, 2000, 3.0
FAMILY = Gaussian()

Closure = Callable[[], Tensor]


def actor(seed: int) -> nn.Sequential:
    """Build the usual continuous-control actor, 17-64-64-6 tanh, with a free log std."""
    torch.manual_seed(seed)
    layers = [nn.Linear(STATES, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, ACTIONS)]
    for layer, gain in zip(layers, (1.0, 1.0, 0.05), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2], FreeLogStd(ACTIONS))


class Bandit:
    """A source of batches of states, actions and advantages for a policy."""

    def __init__(self, seed: int) -> None:
        self.generator = Generator().manual_seed(seed)
        self.mixing = self._normal(8, STATES) / math.sqrt(8)
        self.target = self._normal(STATES, ACTIONS) / 2

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator)

    @torch.no_grad()
    def record(self, policy: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw states, actions, their log-probabilities, and standardised advantages."""
        states = self._normal(CASES, 8) @ self.mixing + 0.3 * self._normal(CASES, STATES)
        z = policy(states)
        actions = FAMILY.sample(z, self.generator)
        rewards = -(actions - torch.tanh(states @ self.target)).square().sum(1)
        advantages = rewards / rewards.std() + NOISE * self._normal(CASES)
        advantages = (advantages - advantages.mean()) / advantages.std()
        return states, actions, FAMILY.log_prob(z, actions), advantages

    def closure(self, policy: nn.Module) -> Closure:
        """Record a batch; return its surrogate loss -E[ratio * advantage] as an optimiser's closure."""
        states, actions, old, advantages = self.record(policy)

        def evaluate() -> Tensor:
            policy.zero_grad()
            ratio = (FAMILY.log_prob(policy(states), actions) - old).exp()
            loss = -(ratio * advantages).mean()
            loss.backward()
            return loss.detach()

        return evaluate

"""One recorded batch of a small Gaussian policy in Hopper, for studies of a single update."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn

from geonpg.kfac import FreeLogStd, Gaussian

ENV_ID = "Hopper-v4"
SIZES = (11, 8, 8, 3)
DISCOUNT = 0.99


@dataclass(frozen=True)
class PolicyBatch:
    """A policy and data that it collected."""

    policy: nn.Sequential
    observations: Tensor  # [n, 11]
    actions: Tensor  # [n, 3]
    advantages: Tensor  # [n]


@dataclass(frozen=True)
class Interaction:
    """Steps of one environment, in order."""

    observations: Tensor
    actions: Tensor
    rewards: list[float]
    ends: list[bool]  # whether the episode ended with the step


def small_policy(generator: Generator) -> nn.Sequential:
    """Make a policy of tanh layers in their curved range: near-linear ones would leave the metric almost singular."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(SIZES):
        linear = nn.Linear(inputs, outputs, dtype=torch.float64)
        nn.init.orthogonal_(linear.weight, gain=1 if outputs == SIZES[-1] else 2, generator=generator)
        nn.init.normal_(linear.bias, std=0.5, generator=generator)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1], FreeLogStd(SIZES[-1], initial=-0.5).double())


@torch.no_grad()
def interact(env: Any, act: Callable[[Tensor], Tensor], steps: int) -> Interaction:
    """Take `steps` steps, over as many episodes as that takes."""
    observations, actions, rewards, ends = list[Tensor](), list[Tensor](), list[float](), list[bool]()
    seen, _ = env.reset()
    for _ in range(steps):
        observations.append(torch.as_tensor(seen, dtype=torch.float64))
        actions.append(act(observations[-1]))
        seen, reward, terminated, truncated, _ = env.step(actions[-1].clamp(-1, 1).numpy())
        rewards.append(float(reward))
        ends.append(terminated or truncated)
        if ends[-1]:
            seen, _ = env.reset()
    return Interaction(torch.stack(observations), torch.stack(actions), rewards, ends)


def standardised_returns(steps: Interaction) -> Tensor:
    """Return discounted rewards to go, with their mean and scale taken out: a plain stand-in for advantages."""
    to_go, total = list[float](), 0.0
    for reward, end in zip(reversed(steps.rewards), reversed(steps.ends), strict=True):
        total = reward + (0.0 if end else DISCOUNT * total)
        to_go.append(total)
    returns = torch.tensor(to_go[::-1], dtype=torch.float64)
    return (returns - returns.mean()) / returns.std()


def record_batch(steps: int, seed: int = 0) -> PolicyBatch:
    """Record a batch of a fresh policy; a first rollout of uniform actions standardises its observations."""
    import gymnasium

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # v4 is the version that this project reports
        env = gymnasium.make(ENV_ID)
    env.reset(seed=seed)
    generator = Generator().manual_seed(seed)
    policy, family = small_policy(generator), Gaussian()
    uniform = interact(env, lambda _: 2 * torch.rand(SIZES[-1], dtype=torch.float64, generator=generator) - 1, steps)
    mean, std = uniform.observations.mean(0), uniform.observations.std(0)

    def act(observation: Tensor) -> Tensor:
        return family.sample(policy((observation - mean) / std), generator)

    played = interact(env, act, steps)
    env.close()
    return PolicyBatch(policy, (played.observations - mean) / std, played.actions, standardised_returns(played))

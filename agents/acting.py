"""Draw actions while a rollout is collected: the one piece of Python that every vector step waits for.

A Gaussian policy on vectors is evaluated by numpy, whose calls on a dozen rows take a third of torch's time. Its
log-probabilities are computed later, by torch, for the whole rollout at once.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.distributions import MultiCategoricalDistribution
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from geonpg.kfac import ALONE, FreeLogStd, Ranks

from .observations import Array, Observations
from .outputs import Networks

Floats = NDArray[np.float32]
Act = Callable[[Observations], Array]
# A linear layer: weight [out, in], bias [out], and the name of the activation behind it, "" for none.
Layer = tuple[Floats, Floats, str]


ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}
APPLIED: dict[str, Callable[[Floats], object]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0, out=x),
}


class Means(Protocol):
    """Environments that take whole rollouts of a simple policy, and compute its means alike for single steps."""

    def policy_mean(self, layers: Sequence[Layer]) -> Callable[[Observations], Array]:
        """Return the function that computes means of actions for batches of observations."""


def sampler(networks: Networks, n_steps: int, env: VecEnv, ranks: Ranks = ALONE) -> Act:
    """Make the function that draws actions for observations, for the next `n_steps` calls.

    The policy must not change in between.
    """
    if not is_gaussian(networks):
        return lambda observations: draw(networks, observations, ranks)
    layers = simple_layers(networks)
    if layers is None:
        mean = torch_mean(networks)
    else:
        native = hasattr(type(env), "policy_mean")
        mean = cast(Means, env).policy_mean(layers) if native else numpy_mean(layers)
    noise = iter(noise_of(networks, n_steps, env.num_envs, ranks))
    return lambda observations: mean(observations) + next(noise)


def is_gaussian(networks: Networks) -> bool:
    """Whether actions are normal around a mean, with deviations that are parameters of their own."""
    return isinstance(networks.actor, nn.Sequential) and type(networks.actor[-1]) is FreeLogStd


def noise_of(networks: Networks, n_steps: int, n_envs: int, ranks: Ranks) -> Floats:
    """Draw what a Gaussian policy adds to its means in a rollout: [steps, environments, size]."""
    assert isinstance(networks.actor, nn.Sequential)
    std = np.exp(networks.actor[-1].get_parameter("log_std").detach().cpu().numpy())
    return std * ranks.own(torch.randn(n_steps, ranks.size * n_envs, len(std)), dim=1).numpy()


@torch.no_grad()
def draw(networks: Networks, observations: Observations, ranks: Ranks = ALONE) -> Array:
    """Draw one action per observation by torch, without an SB3 distribution where that can be avoided."""
    seen = networks.tensors(observations)
    if not networks.standard:
        return networks.policy(seen)[0].cpu().numpy()
    actions = ranks.drawn(networks.family.sample, networks.actor(networks.inputs(seen)))
    whole = isinstance(networks.policy.action_dist, MultiCategoricalDistribution)
    return (actions.long() if whole else actions).cpu().numpy()


def simple_layers(networks: Networks) -> list[Layer] | None:
    """The layers of a Gaussian policy on vectors that can be evaluated without torch; None if it is another."""
    space, chain = networks.policy.observation_space, networks.actor
    plain = type(networks.policy.pi_features_extractor) is FlattenExtractor
    vectors = networks.standard and plain and isinstance(space, spaces.Box) and len(space.shape) == 1
    if not vectors or networks.device.type != "cpu" or not isinstance(chain, nn.Sequential):
        return None
    layers = list[Layer]()
    for module in list(chain)[:-1]:
        if type(module) is nn.Linear:
            bias = torch.zeros(module.out_features) if module.bias is None else module.bias.detach()
            layers.append((module.weight.detach().numpy(), bias.numpy(), ""))
        elif type(module) in ACTIVATIONS and layers and not layers[-1][2]:
            layers[-1] = (*layers[-1][:2], ACTIVATIONS[type(module)])
        else:
            return None
    return layers


def torch_mean(networks: Networks) -> Act:
    """The mean of a Gaussian policy's actions, by torch."""

    @torch.no_grad()
    def mean(observations: Observations) -> Array:
        z = networks.actor(networks.inputs(networks.tensors(observations)))
        return z.chunk(2, -1)[0].cpu().numpy()

    return mean


def numpy_mean(layers: Sequence[Layer]) -> Act:
    """The mean of a Gaussian policy's actions, by numpy."""

    def mean(observations: Observations) -> Array:
        assert isinstance(observations, np.ndarray)
        x = observations.astype(np.float32)
        for weight, bias, activation in layers:
            x = x @ weight.T
            x += bias
            if activation:
                APPLIED[activation](x)
        return x

    return mean

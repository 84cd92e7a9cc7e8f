"""Draw actions while a rollout is collected: the one piece of Python that every vector step waits for.

A Gaussian policy on vectors is evaluated by numpy, whose calls on a dozen rows take a third of torch's time. Its
log-probabilities are computed later, by torch, for the whole rollout at once.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.distributions import MultiCategoricalDistribution
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn

from geonpg.kfac import ALONE, FreeLogStd, Ranks

from .observations import Array, Observations
from .outputs import Networks

Floats = NDArray[np.float32]
Act = Callable[[Observations], Array]


def relu(x: Floats) -> Floats:
    """Compute max(x, 0) in place."""
    return np.maximum(x, 0, out=x)


def tanh(x: Floats) -> Floats:
    """Compute tanh(x) in place."""
    return np.tanh(x, out=x)


ACTIVATIONS: dict[type[nn.Module], Callable[[Floats], Floats]] = {nn.Tanh: tanh, nn.ReLU: relu}


def sampler(networks: Networks, n_steps: int, n_envs: int, ranks: Ranks = ALONE) -> Act:
    """Make the function that draws actions for observations, for the next `n_steps` calls.

    The policy must not change in between.
    """
    *layers, last = networks.actor if isinstance(networks.actor, nn.Sequential) else [networks.actor]
    if type(last) is not FreeLogStd:
        return lambda observations: draw(networks, observations, ranks)
    by_numpy = networks.device.type == "cpu" and is_simple(networks, layers)
    mean = numpy_mean(layers) if by_numpy else torch_mean(networks)
    std = np.exp(last.get_parameter("log_std").detach().cpu().numpy())
    noise = iter(std * ranks.own(torch.randn(n_steps, ranks.size * n_envs, len(std)), dim=1).numpy())
    return lambda observations: mean(observations) + next(noise)


@torch.no_grad()
def draw(networks: Networks, observations: Observations, ranks: Ranks = ALONE) -> Array:
    """Draw one action per observation by torch, without an SB3 distribution where that can be avoided."""
    seen = networks.tensors(observations)
    if not networks.standard:
        return networks.policy(seen)[0].cpu().numpy()
    actions = ranks.drawn(networks.family.sample, networks.actor(networks.inputs(seen)))
    whole = isinstance(networks.policy.action_dist, MultiCategoricalDistribution)
    return (actions.long() if whole else actions).cpu().numpy()


def is_simple(networks: Networks, layers: Sequence[nn.Module]) -> bool:
    """Whether the policy takes vectors, through layers that numpy can evaluate."""
    space = networks.policy.observation_space
    plain = type(networks.policy.pi_features_extractor) is FlattenExtractor
    vectors = networks.standard and plain and isinstance(space, spaces.Box) and len(space.shape) == 1
    return vectors and all(type(layer) is nn.Linear or type(layer) in ACTIVATIONS for layer in layers)


def torch_mean(networks: Networks) -> Act:
    """The mean of a Gaussian policy's actions, by torch."""

    @torch.no_grad()
    def mean(observations: Observations) -> Array:
        z = networks.actor(networks.inputs(networks.tensors(observations)))
        return z.chunk(2, -1)[0].cpu().numpy()

    return mean


def numpy_mean(layers: Sequence[nn.Module]) -> Act:
    """The mean of a Gaussian policy's actions, by numpy."""
    steps = [affine(layer) if isinstance(layer, nn.Linear) else ACTIVATIONS[type(layer)] for layer in layers]

    def mean(observations: Observations) -> Array:
        assert isinstance(observations, np.ndarray)
        x = observations.astype(np.float32)
        for step in steps:
            x = step(x)
        return x

    return mean


def affine(layer: nn.Linear) -> Callable[[Floats], Floats]:
    """A linear layer as a numpy function, which shares the layer's memory."""
    weight = layer.weight.detach().numpy().T
    if layer.bias is None:
        return lambda x: x @ weight
    bias = layer.bias.detach().numpy()

    def apply(x: Floats) -> Floats:
        out = x @ weight
        out += bias
        return out

    return apply

"""Draws actions while a rollout is collected: the one piece of Python that every vector step waits for.

A Gaussian policy on vectors is evaluated by numpy, whose calls on a dozen rows take a third of torch's time. Its
log-probabilities are computed later, by torch, for the whole rollout at once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.utils import obs_as_tensor
from torch import nn

from geonpg.kfac import ALONE, FreeLogStd, Ranks

from .outputs import Networks

Array = NDArray[Any]
Act = Callable[[Any], Array]


def relu(x: Array) -> Array:
    return np.maximum(x, 0, out=x)


def tanh(x: Array) -> Array:
    return np.tanh(x, out=x)


ACTIVATIONS: dict[type[nn.Module], Callable[[Array], Array]] = {nn.Tanh: tanh, nn.ReLU: relu}


def sampler(networks: Networks, n_steps: int, n_envs: int, device: torch.device, ranks: Ranks = ALONE) -> Act:
    """From observations to actions, for the next `n_steps` calls; the policy must not change in between."""
    *layers, last = networks.actor if isinstance(networks.actor, nn.Sequential) else [networks.actor]
    if type(last) is not FreeLogStd:
        return lambda observations: networks.act(obs_as_tensor(observations, device), ranks).cpu().numpy()
    mean = numpy_chain(layers) if device.type == "cpu" and is_simple(networks, layers) else torch_mean(networks, device)
    std = np.exp(last.get_parameter("log_std").detach().cpu().numpy())
    noise = iter(std * ranks.own(torch.randn(n_steps, ranks.size * n_envs, len(std)), dim=1).numpy())
    return lambda observations: mean(observations) + next(noise)


def is_simple(networks: Networks, layers: Sequence[nn.Module]) -> bool:
    """Vectors in, and layers that numpy can do?"""
    space = networks.policy.observation_space
    plain = type(networks.policy.pi_features_extractor) is FlattenExtractor
    vectors = networks.standard and plain and isinstance(space, spaces.Box) and len(space.shape) == 1
    return vectors and all(type(layer) is nn.Linear or type(layer) in ACTIVATIONS for layer in layers)


def torch_mean(networks: Networks, device: torch.device) -> Act:
    @torch.no_grad()
    def mean(observations: Any) -> Array:
        z = networks.actor(networks.inputs(obs_as_tensor(observations, device)))
        return z.chunk(2, -1)[0].cpu().numpy()

    return mean


def numpy_chain(layers: Sequence[nn.Module]) -> Act:
    steps: list[Callable[[Array], Array]] = [
        affine(layer) if isinstance(layer, nn.Linear) else ACTIVATIONS[type(layer)] for layer in layers
    ]

    def mean(observations: Array) -> Array:
        x = observations.astype(np.float32)
        for step in steps:
            x = step(x)
        return x

    return mean


def affine(layer: nn.Linear) -> Callable[[Array], Array]:
    weight = layer.weight.detach().numpy().T
    if layer.bias is None:
        return lambda x: x @ weight
    bias = layer.bias.detach().numpy()

    def apply(x: Array) -> Array:
        out = x @ weight
        out += bias
        return out

    return apply

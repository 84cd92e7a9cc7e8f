"""Draws actions while a rollout is collected: the one piece of Python that every vector step waits for.

A Gaussian policy on vectors is evaluated by numpy, whose calls on a dozen rows take a third of torch's time. Its
log-probabilities are computed later, by torch, for the whole rollout at once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.utils import obs_as_tensor
from torch import nn

from geonpg.kfac import FreeLogStd

from .outputs import Networks

Array = NDArray[Any]
Act = Callable[[Any], Array]


def relu(x: Array) -> Array:
    return np.maximum(x, 0, out=x)


def tanh(x: Array) -> Array:
    return np.tanh(x, out=x)


ACTIVATIONS: dict[type[nn.Module], Callable[[Array], Array]] = {nn.Tanh: tanh, nn.ReLU: relu}


def sampler(networks: Networks, n_steps: int, n_envs: int, device: torch.device) -> Act:
    """From observations to actions, for the next `n_steps` calls; the policy must not change in between."""
    if device.type == "cpu" and is_simple(networks):
        return numpy_sampler(networks, n_steps, n_envs)
    return lambda observations: networks.act(obs_as_tensor(observations, device)).cpu().numpy()


def is_simple(networks: Networks) -> bool:
    """A Gaussian policy on vectors, all of whose layers numpy can do?"""
    space = networks.policy.observation_space
    if not (networks.fixed_features and isinstance(space, spaces.Box) and len(space.shape) == 1):
        return False
    *layers, last = networks.actor.children()
    return type(last) is FreeLogStd and all(type(x) is nn.Linear or type(x) in ACTIVATIONS for x in layers)


def numpy_sampler(networks: Networks, n_steps: int, n_envs: int) -> Act:
    *layers, last = networks.actor.children()
    steps: list[Callable[[Array], Array]] = [
        affine(layer) if isinstance(layer, nn.Linear) else ACTIVATIONS[type(layer)] for layer in layers
    ]
    std = np.exp(last.get_parameter("log_std").detach().numpy())
    noise = iter(torch.randn(n_steps, n_envs, len(std)).numpy())

    def act(observations: Array) -> Array:
        x = observations.astype(np.float32)
        for step in steps:
            x = step(x)
        x += std * next(noise)
        return x

    return act


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

"""Compiled layers against torch."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from geonpg.envs.physics import LINEAR, RELU, TANH, means

KINDS = {nn.Tanh: TANH, nn.ReLU: RELU}


def pack(network: nn.Sequential) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Weights, widths and kinds as compiled code takes them, put together by hand."""
    linear = [module for module in network if isinstance(module, nn.Linear)]
    parts = [part.detach().numpy().ravel() for layer in linear for part in (layer.bias, layer.weight.T)]
    activations = [KINDS[type(module)] for module in network if type(module) in KINDS]
    kinds = activations + [LINEAR] * (len(linear) - len(activations))
    widths = [linear[0].in_features, *(layer.out_features for layer in linear)]
    return np.concatenate(parts), np.array(widths), np.array(kinds)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("widths", [(3, 1), (11, 3), (4, 7, 2), (17, 64, 64, 6), (5, 33, 17, 9, 40, 1)], ids=str)
def test_means_are_torchs(widths: tuple[int, ...], activation: type[nn.Module]) -> None:
    """With and without hidden layers, of widths that fill no vector register."""
    torch.manual_seed(0)
    layers = [module for sizes in pairwise(widths) for module in (nn.Linear(*sizes), activation())][:-1]
    network = nn.Sequential(*layers)
    x = np.random.default_rng(0).normal(size=(40, widths[0])).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.as_tensor(x)).numpy()
    found = means(*pack(network), x)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-6
    assert np.array_equal(means(*pack(network), x[7:8]), found[7:8]), "whatever surrounds an observation"


def activated(x: NDArray[np.float32], kind: int) -> NDArray[np.float32]:
    """An activation alone, behind a layer that changes nothing."""
    one = np.array([0, 1], np.float32), np.array([1, 1]), np.array([kind])
    return means(*one, x[:, None])[:, 0]


def test_tanh_is_accurate() -> None:
    x = np.linspace(-12, 12, 200_001, dtype=np.float32)
    found, truth = activated(x, TANH), np.tanh(x.astype(np.float64))
    assert np.abs(found - truth).max() < 4e-7
    assert np.abs(found).max() <= 1
    assert np.array_equal(found, -found[::-1])
    small = np.geomspace(1e-30, 1, 2001, dtype=np.float32)
    assert np.abs(activated(small, TANH) / np.tanh(small.astype(np.float64)) - 1).max() < 4e-7


def test_what_is_not_finite() -> None:
    """NaN stays NaN, whatever the activation, so that a broken policy is noticed."""
    x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38], np.float32)
    assert np.isnan(activated(x, TANH)[0])
    assert activated(x, TANH)[1:] == pytest.approx([1, -1, 1, -1], abs=4e-7)
    assert np.array_equal(activated(x, RELU), [np.nan, np.inf, 0, x[3], 0], equal_nan=True)
    assert np.array_equal(activated(x, LINEAR), x, equal_nan=True)

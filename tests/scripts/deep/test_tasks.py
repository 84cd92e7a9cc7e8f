"""The networks of the tasks, and experiments whose data are too few."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from geonpg.scripts.deep.data import DataError, Split
from geonpg.scripts.deep.tasks import DEEP_TASKS, autoencoder, classifier, make_experiment


def test_true_architectures() -> None:
    widths = {
        "curves": (784, 400, 200, 100, 50, 25, 6),
        "mnist": (784, 1000, 500, 250, 30),
        "faces": (625, 2000, 1000, 500, 30),
        "mnist-classifier": (784, 1000, 500, 250, 30, 10),
    }
    assert {name: task.sizes["full"].widths for name, task in DEEP_TASKS.items()} == widths
    layers = [type(layer).__name__ for layer in autoencoder((9, 5, 3))]
    assert layers == ["Linear", "Sigmoid", "Linear", "Linear", "Sigmoid", "Linear"]
    assert autoencoder((9, 5, 3))(torch.zeros(2, 9)).shape == (2, 9)
    assert classifier((9, 5, 3))(torch.zeros(2, 9)).shape == (2, 3)


def test_too_few_cases_are_refused() -> None:
    images = np.zeros((3, 784), np.float32)
    task = replace(DEEP_TASKS["curves"], data=lambda *_: Split(images, images))
    with pytest.raises(DataError, match="hold 3 training and 3 test cases, fewer than the 2000 and 1000 asked for"):
        make_experiment(task, task.sizes["small"], None, 0)

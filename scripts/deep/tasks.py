"""The tasks of `geonpg deepnets`: networks, losses, data and settings (paper, section 6.2 and its appendix)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from geonpg.kfac import Bernoulli, Cases, Categorical, Family, FixedGaussian, Problem, sparse_initialisation
from geonpg.scripts.deep.data import DataError, Split, centred_mnist, curve_images, faces, mnist


def bernoulli_error(z: Tensor, t: Tensor) -> Tensor:
    """Squared error of the reconstruction, where the outputs are logits; summed over pixels."""
    return (z.sigmoid() - t).square().sum(-1)


def gaussian_error(z: Tensor, t: Tensor) -> Tensor:
    """Squared error of the reconstruction, where the outputs are its means."""
    return (z - t).square().sum(-1)


def classification_error(z: Tensor, t: Tensor) -> Tensor:
    """Errors in per cent."""
    return 100.0 * (z.argmax(-1) != t)


@dataclass(frozen=True)
class Size:
    """How much of a task is trained, and for how long."""

    widths: tuple[int, ...]  # of layers, from the input to the code or the classes
    train: int  # cases
    test: int  # cases
    updates: int


@dataclass(frozen=True)
class DeepTask:
    """What is learnt, from which data, with which loss."""

    data: Callable[[Path | None, int, int, int], Split]  # of a folder, training cases, test cases and a seed
    family: Family  # of the outputs
    error: Callable[[Tensor, Tensor], Tensor]  # of outputs and targets, per case
    unit: str  # of the error
    chunks: int  # the metric of an update sees one of so many parts of the training cases
    threshold: float  # damping below which corrections are switched on
    sizes: Mapping[str, Size]
    files: str = ""  # what the full size reads
    decay: float = 1e-5  # of the weights
    classifies: bool = False


CURVES_SIZES = {
    "small": Size((784, 100, 50, 25, 6), 2000, 1000, 40),
    "full": Size((784, 400, 200, 100, 50, 25, 6), 20_000, 10_000, 140),
}
MNIST_SIZES = {
    "small": Size((784, 100, 50, 20), 2000, 1000, 30),
    "full": Size((784, 1000, 500, 250, 30), 60_000, 10_000, 140),
}
FACES_SIZES = {
    "small": Size((625, 100, 50, 20), 2000, 1000, 30),
    "full": Size((625, 2000, 1000, 500, 30), 103_500, 41_400, 140),
}
CLASSIFIER_SIZES = {
    "small": Size((784, 100, 50, 20, 10), 2000, 1000, 30),
    "full": Size((784, 1000, 500, 250, 30, 10), 60_000, 10_000, 140),
}
IDX = "MNIST's four IDX files"
DEEP_TASKS = {
    "curves": DeepTask(curve_images, Bernoulli(), bernoulli_error, "squared error", 4, 5.0, CURVES_SIZES),
    "mnist": DeepTask(mnist, Bernoulli(), bernoulli_error, "squared error", 8, 10.0, MNIST_SIZES, IDX),
    "faces": DeepTask(
        faces, FixedGaussian(), gaussian_error, "squared error", 20, 0.1, FACES_SIZES, "olivettifaces.mat", 5e-6
    ),
    "mnist-classifier": DeepTask(
        centred_mnist, Categorical(), classification_error, "errors in %", 8, 10.0, CLASSIFIER_SIZES, IDX,
        classifies=True,
    ),
}  # fmt: skip


def autoencoder(widths: tuple[int, ...]) -> nn.Sequential:
    """Build a mirrored network of logistic units with a linear code layer; its outputs enter the last activation."""
    there = [*chain_of(widths[:-1]), nn.Linear(widths[-2], widths[-1])]
    back = [*chain_of(widths[:0:-1]), nn.Linear(widths[1], widths[0])]
    return nn.Sequential(*there, *back)


def classifier(widths: tuple[int, ...]) -> nn.Sequential:
    """Build a network of logistic units whose outputs are logits."""
    return nn.Sequential(*chain_of(widths[:-1]), nn.Linear(widths[-2], widths[-1]))


def chain_of(widths: tuple[int, ...]) -> list[nn.Module]:
    """Build layers of logistic units."""
    return [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.Sigmoid())]


@dataclass(frozen=True)
class Experiment:
    """A task at a size with its data: everything that a method needs."""

    task: DeepTask
    module: nn.Sequential
    problem: Problem
    test: Cases

    def start(self, seed: int) -> Tensor:
        """Draw the sparse initialisation; return it flat."""
        sparse_initialisation(self.module, Generator().manual_seed(seed))
        return self.problem.layout.read()


def make_experiment(task: DeepTask, size: Size, folder: Path | None, seed: int) -> Experiment:
    """Load the data, or raise DataError before anything is built; then build the network."""
    split = task.data(folder, size.train, size.test, seed)
    short = len(split.train) < size.train or len(split.test) < size.test
    if short:
        have = f"{len(split.train)} training and {len(split.test)} test cases"
        raise DataError(f"the data hold {have}, fewer than the {size.train} and {size.test} asked for")
    images, test_images = torch.from_numpy(split.train), torch.from_numpy(split.test)
    targets, test_targets = images, test_images
    if task.classifies and split.train_labels is not None and split.test_labels is not None:
        targets, test_targets = torch.from_numpy(split.train_labels), torch.from_numpy(split.test_labels)
    module = (classifier if task.classifies else autoencoder)(size.widths)
    cases = Cases(images, targets, task.error, task.chunks)
    test = Cases(test_images, test_targets, task.error, max(1, len(test_images) // 1000))
    return Experiment(task, module, Problem(module, task.family, cases, task.decay), test)

"""How a network of `geonpg deepnets` is trained: Hessian-free by any rule, and the baselines beside it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from geonpg.kfac import (
    FactorSettings,
    HessianFree,
    HessianFreeSettings,
    NaturalGradient,
    Problem,
    Truncation,
    TrustRegion,
)
from geonpg.scripts.deep.tasks import Experiment

# Adam's are the best of 1e-3 and 3e-3 on CURVES, small, at equal processor time; K-FAC's were not tuned.
ADAM_RATE, ADAM_BATCH, KFAC_BATCH = 3e-3, 50, 250


@dataclass(frozen=True)
class Progress:
    """What one update found; nan where a method has no such number."""

    train_loss: float
    train_error: float
    damping: float = math.nan
    ratio: float = math.nan  # actual over predicted reduction of the loss
    rate: float = math.nan  # the step size that the line search found
    cg_iterations: float = math.nan
    corrected: float = math.nan  # 1 if the correction was taken


class Method(ABC):
    """A training run that can be stopped after any update and continued bit for bit."""

    @abstractmethod
    def update(self) -> Progress:
        """Make one update."""

    @property
    @abstractmethod
    def y(self) -> Tensor:
        """The parameters, flat."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next update depends on."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state."""


class HessianFreeMethod(Method):
    """Hessian-free optimisation by one of the rules."""

    def __init__(self, experiment: Experiment, seed: int, rule: str, settings: HessianFreeSettings) -> None:
        settings = replace(settings, threshold=experiment.task.threshold)
        self.optimizer = HessianFree(experiment.problem, experiment.start(seed), rule, settings, seed)

    def update(self) -> Progress:
        r = self.optimizer.step()
        return Progress(r.loss, r.error, r.damping, r.ratio, r.h, float(r.iterations), float(r.corrected))

    @property
    def y(self) -> Tensor:
        return self.optimizer.y

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state)


class AdamFull(Method):
    """One Adam step on all cases per update, as in the paper's figure."""

    def __init__(self, experiment: Experiment, seed: int, lr: float) -> None:
        self.problem = experiment.problem
        self.parameter = torch.nn.Parameter(experiment.start(seed))
        self.adam = torch.optim.Adam([self.parameter], lr=lr)

    @property
    def y(self) -> Tensor:
        return self.parameter.detach()

    def update(self) -> Progress:
        self.parameter.grad = self.problem.gradient(self.y)
        self.adam.step()
        return progress_at(self.problem, self.y)

    def state_dict(self) -> dict[str, Any]:
        return {"y": self.y, "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.parameter.data.copy_(state["y"])
        self.adam.load_state_dict(state["adam"])


class MiniBatches(Method):
    """A torch optimiser on random mini-batches; an update is one pass over the training cases."""

    def __init__(
        self, experiment: Experiment, seed: int, make: Callable[[Experiment], torch.optim.Optimizer], batch: int
    ) -> None:
        self.experiment, self.batch = experiment, batch
        experiment.problem.layout.write(experiment.start(seed))
        self.optimizer = make(experiment)
        self.shuffle = Generator().manual_seed(seed)

    @property
    def y(self) -> Tensor:
        return self.experiment.problem.layout.read()

    def update(self) -> Progress:
        problem = self.experiment.problem
        for rows in torch.randperm(len(problem.cases), generator=self.shuffle).split(self.batch):
            x, t = problem.cases.x[rows], problem.cases.t[rows]
            self.optimizer.step(partial(self._loss, x, t))
        return progress_at(problem, self.y)

    def _loss(self, x: Tensor, t: Tensor) -> Any:
        """The closure of a step: gradients set, the loss returned."""
        problem, module = self.experiment.problem, self.experiment.module
        self.optimizer.zero_grad()
        penalty = sum(p.square().sum() for p in module.parameters() if p.ndim > 1)
        loss = 0.5 * problem.decay * penalty - problem.family.log_prob(module(x), t).mean()
        loss.backward()
        return loss

    def state_dict(self) -> dict[str, Any]:
        shuffle = self.shuffle.get_state()
        return {"y": self.y, "optimizer": self.optimizer.state_dict(), "shuffle": shuffle}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.experiment.problem.layout.write(state["y"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.shuffle.set_state(state["shuffle"])


def progress_at(problem: Problem, y: Tensor) -> Progress:
    """Measure loss and error on all training cases."""
    found = problem.evaluate(y)
    return Progress(found.loss, found.error)


def adam(experiment: Experiment, lr: float) -> torch.optim.Optimizer:
    """Make torch's Adam."""
    return torch.optim.Adam(experiment.module.parameters(), lr=lr)


def kfac(experiment: Experiment, rule: str) -> torch.optim.Optimizer:
    """Make our optimiser for mini-batches."""
    return NaturalGradient(
        experiment.module,
        experiment.task.family,
        rule=rule,
        solver="kfac",
        control=TrustRegion(max_kl=0.3),
        damping=0.03,
        gradient_averaging=0.9,
        factors=FactorSettings(averaging=0.95, update_every=5),
    )


Factory = Callable[[Experiment, int], Method]  # of an experiment and a seed
PAPER = HessianFreeSettings()
BARE = replace(PAPER, guard=False)  # for the small-curvature study: every correction is taken
LONG = replace(PAPER, truncation=Truncation(iterations=2 * PAPER.truncation.iterations))
DEEP_METHODS: dict[str, Factory] = {
    "ng": lambda e, seed: HessianFreeMethod(e, seed, "ng", PAPER),
    "mid": lambda e, seed: HessianFreeMethod(e, seed, "mid", PAPER),
    "geo": lambda e, seed: HessianFreeMethod(e, seed, "geo", PAPER),
    "geof": lambda e, seed: HessianFreeMethod(e, seed, "geof", PAPER),
    "ng-long": lambda e, seed: HessianFreeMethod(e, seed, "ng", LONG),  # a control: `mid` and `geo` solve twice
    "geodesic": lambda e, seed: HessianFreeMethod(e, seed, "geo", replace(BARE, alpha=1.0)),
    "perturb": lambda e, seed: HessianFreeMethod(e, seed, "geo", replace(BARE, correction="perturb")),
    "adam": lambda e, seed: MiniBatches(e, seed, lambda e: adam(e, ADAM_RATE), ADAM_BATCH),
    "adam-full": lambda e, seed: AdamFull(e, seed, 1e-3),
    "kfac": lambda e, seed: MiniBatches(e, seed, lambda e: kfac(e, "ng"), KFAC_BATCH),
    "kfac-geo": lambda e, seed: MiniBatches(e, seed, lambda e: kfac(e, "geo"), KFAC_BATCH),
}

"""Small policies and their flows, and small problems of Hessian-free optimisation."""

from itertools import pairwise
from typing import Any

import torch
from torch import Generator, Tensor, nn

from geonpg.kfac import (
    SOLVERS,
    Bernoulli,
    Cases,
    FactorSettings,
    Family,
    FreeLogStd,
    Gaussian,
    KroneckerFisher,
    Problem,
    Solver,
    sparse_initialisation,
)
from geonpg.kfac.batch import CallsBatch
from geonpg.kfac.network import Call, Network
from geonpg.kfac.network_flow import FlowMemory, Geometry, NetworkFlow


def policy(sizes: tuple[int, ...] = (4, 6, 5), actions: int = 2, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for i, o in pairwise(sizes):
        layers += [nn.Linear(i, o), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], actions), FreeLogStd(actions, -0.2)).double()


class Surrogate:
    """A recorded batch of a policy: states, actions drawn from it, and made-up advantages."""

    def __init__(self, module: nn.Module, family: Family, x: Tensor, seed: int = 0) -> None:
        generator = Generator().manual_seed(seed)
        self.module, self.family, self.x = module, family, x
        with torch.no_grad():
            z = module(x)
            self.draws = family.sample(z, generator)
            self.old = family.log_prob(z, self.draws)
        self.advantages = torch.randn(len(x), dtype=x.dtype, generator=generator)

    def loss(self) -> Tensor:
        ratio = (self.family.log_prob(self.module(self.x), self.draws) - self.old).exp()
        return -(ratio * self.advantages).mean()

    def __call__(self) -> Tensor:
        """The closure of an optimiser step."""
        self.module.zero_grad()
        loss = self.loss()
        loss.backward()
        return loss


def flow_of(
    module: nn.Module,
    problem: Surrogate,
    solver: str | Solver = "dense",
    damping: float = 0.0,
    alpha: float = 0.0,
    calibrate: bool = True,
    averaging: float = 0.0,
    memory: FlowMemory | None = None,
) -> tuple[NetworkFlow, Tensor]:
    """The natural-gradient flow on the problem's batch, and where it starts."""
    fisher = KroneckerFisher(module, problem.family, FactorSettings())
    network = Network(module, list(fisher.layers))
    chosen = SOLVERS[solver] if isinstance(solver, str) else solver

    def evaluate(y: Tensor) -> tuple[float, Tensor]:
        network.layout.write(y)
        return float(problem().detach()), network.layout.gradient()

    geometry = Geometry(network, fisher, chosen, alpha, calibrate, averaging)
    batch, generator = CallsBatch(network, [Call((problem.x,))], evaluate), Generator().manual_seed(0)
    start = network.layout.read()
    return NetworkFlow(geometry, batch, start, memory or FlowMemory(), damping, generator), start


def gaussian_flow(
    solver: str | Solver = "dense", seed: int = 0, damping: float = 0.0, **options: Any
) -> tuple[NetworkFlow, Tensor]:
    module = policy(seed=seed)
    x = torch.randn(60, 4, dtype=torch.float64, generator=Generator().manual_seed(seed))
    return flow_of(module, Surrogate(module, Gaussian(), x, seed), solver, damping, **options)


def problem(family: Family, *last: nn.Module, classes: bool = False, cases: int = 6) -> Problem:
    """A small Hessian-free problem on random cases; every call gives the same parameters and cases."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 3), *last).double()
    x = torch.randn(cases, 3, dtype=torch.float64)
    t = torch.randint(3, (cases,)) if classes else torch.rand(cases, 3, dtype=torch.float64)
    return Problem(module, family, Cases(x, t, lambda z, t: z.sum(-1), 2), 1e-3)


def autoencoder(seed: int = 0, cases: int = 60) -> Problem:
    """An autoencoder of cases that two numbers describe, as a Hessian-free problem."""
    torch.manual_seed(seed)
    module = nn.Sequential(
        nn.Linear(8, 6), nn.Sigmoid(), nn.Linear(6, 2), nn.Linear(2, 6), nn.Sigmoid(), nn.Linear(6, 8)
    )
    sparse_initialisation(module, Generator().manual_seed(seed), incoming=4)
    code = torch.rand(cases, 2)
    x = (code @ torch.randn(2, 8)).sigmoid()
    return Problem(module, Bernoulli(), Cases(x, x, lambda z, t: (z.sigmoid() - t).square().sum(-1), 3), 1e-5)

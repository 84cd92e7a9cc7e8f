"""Small policies and their flows, for tests."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from geonpg.kfac import SOLVERS, FactorSettings, Family, FreeLogStd, Gaussian, KroneckerFisher, Solver
from geonpg.kfac.network import Call, Network
from geonpg.kfac.network_flow import Batch, FlowMemory, Geometry, NetworkFlow


def policy(sizes: tuple[int, ...] = (4, 6, 5), actions: int = 2, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for i, o in pairwise(sizes):
        layers += [nn.Linear(i, o), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], actions), FreeLogStd(actions, -0.2)).double()


class Surrogate:
    """A recorded batch of a policy: states, actions drawn from it, and made-up advantages."""

    def __init__(self, module: nn.Module, family: Family, x: Tensor, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
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
    batch, generator = Batch([Call((problem.x,))], evaluate), torch.Generator().manual_seed(0)
    flow = NetworkFlow(geometry, batch, memory or FlowMemory(), damping, generator)
    return flow, network.layout.read()


def gaussian_flow(
    solver: str | Solver = "dense", seed: int = 0, damping: float = 0.0, **options: Any
) -> tuple[NetworkFlow, Tensor]:
    module = policy(seed=seed)
    x = torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return flow_of(module, Surrogate(module, Gaussian(), x, seed), solver, damping, **options)

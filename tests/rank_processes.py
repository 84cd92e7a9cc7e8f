"""Several processes of one process group, for tests: each runs a function of this module and leaves what it returns."""

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from geonpg.agents.stepping import Stepper
from geonpg.configs import load
from geonpg.kfac import ALONE, FactorSettings, FreeLogStd, Gaussian, NaturalGradient, ProcessGroup, Ranks, TrustRegion
from geonpg.scripts.runs.building import normalization_of
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.run import Run

CASES, UPDATES = 40, 3
SOLVERS = ("kfac", "pcg", "cg", "dense")
METHODS = ("ng", "mid", "geo", "geof")


def run(task: Any, size: int, folder: Path, *arguments: Any) -> list[Any]:
    """`task(ranks, *arguments)` on every rank of a group; what each of them returned."""
    mp.spawn(_on_rank, args=(task, size, str(folder), arguments), nprocs=size)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def _on_rank(rank: int, task: Any, size: int, folder: str, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    torch.save(task(ProcessGroup(), *arguments), f"{folder}/{rank}.pt")
    dist.barrier()
    # threads of the group may still let go of tensors while the interpreter goes down, and abort it (stopping.leave)
    os._exit(0)


def policy() -> nn.Module:
    """Two layers and one that has no Kronecker form, so that every kind of block is there."""
    torch.manual_seed(0)
    layers = [nn.Linear(5, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3), FreeLogStd(3, -0.5)]
    return nn.Sequential(*layers).double()


def plain_policy() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3), FreeLogStd(3, -0.5)).double()


def recorded() -> tuple[Tensor, Tensor, Tensor]:
    """Observations, actions and advantages of a rollout."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((CASES, 5), (CASES, 3), (CASES,))
    x, draws, advantages = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return x, draws, advantages * (1 + x[:, 0].abs())


def updates(ranks: Ranks, method: str, solver: str, module: nn.Module) -> Tensor:
    """The parameters after a few updates on this rank's part of the rollout."""
    x, draws, advantages = (ranks.own(part) for part in recorded())
    mean, deviation = ranks.moments(advantages)
    scaled, family = (advantages - mean) / deviation, Gaussian()
    old = family.log_prob(module(x), draws).detach()
    optimizer = NaturalGradient(
        module, family, rule=method, solver=solver, control=TrustRegion(max_kl=0.02), gradient_averaging=0.5,
        factors=FactorSettings(averaging=0.9), seed=3, ranks=ranks,
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -(torch.exp(family.log_prob(module(x), draws) - old) * scaled).mean()
        loss.backward()
        return loss

    for _ in range(UPDATES):
        optimizer.step(closure)
        assert optimizer.report.accepted
    return optimizer.geometry.network.layout.read()


def every_combination(ranks: Ranks = ALONE) -> dict[str, Tensor]:
    found = {f"{m}/{s}": updates(ranks, m, s, plain_policy()) for m in METHODS for s in SOLVERS}
    return found | {"ng/kfac, norm": updates(ranks, "ng", "kfac", policy())}


def sharing(ranks: Ranks) -> dict[str, Any]:
    """What each operation makes of this rank's own data."""
    rank = ranks.rank
    own = torch.arange(rank + 1, dtype=torch.float64)
    tensor = torch.full((2,), float(rank))
    ranks.agree([tensor])
    return {
        "mean": ranks.mean(torch.tensor([1.0, 2.0]) * (rank + 1)),
        "number": ranks.number(float(rank)),
        "least": ranks.least(5.0 - rank),
        "moments": ranks.moments(torch.arange(4.0) + 4 * rank),
        "own": ranks.own(torch.arange(6)),
        "collected": ranks.collected(torch.tensor([rank])),
        "rows": ranks.rows(own),
        "any": (ranks.any(rank == 1), ranks.any(False)),
        "shared out": ranks.shared_out([lambda i=i: torch.full((i,), float(i)) for i in (1, 2, 3)], (1, 2, 3)),
        "agreed": tensor,
    }


def combinations_and_sharing(ranks: Ranks) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Both in one pair of processes, which take longer to start than to run."""
    return every_combination(ranks), sharing(ranks)


def small_plan() -> OurPlan:
    return OurPlan("Hopper-v4", 5, load("default", "Hopper-v4", {"n_envs": 4, "n_steps": 16, "hidden": (8,)}))


def trained(ranks: Ranks, *counts: int) -> list[dict[str, Any]]:
    """Policy, normalisation and episodes after so many updates of an agent that all ranks share, for each number."""
    env, agent = small_plan().make(ranks)
    stepper, moments = Stepper(agent, 100_000), normalization_of(env)
    assert moments is not None
    assert agent.ep_info_buffer is not None
    found = []
    for number in range(1, max(counts) + 1):
        stepper.step()
        if number in counts:
            found.append(
                {
                    "parameters": torch.cat([p.detach().reshape(-1) for p in agent.policy.parameters()]),
                    "actor": torch.cat([p.detach().reshape(-1) for p in agent.networks.actor.parameters()]),
                    "moments": [moments.observation_moments.get_state(), moments.return_moments.get_state()],
                    "episodes": [(episode["r"], episode["l"]) for episode in agent.ep_info_buffer],
                    "steps": agent.num_timesteps,
                    "environments": env.num_envs,
                }
            )
    return found


def resumed(ranks: Ranks, folder: Path, halts: bool) -> Tensor:
    """The policy after two updates and two more, which start from a checkpoint if it halts."""
    run = Run(small_plan(), folder, ranks)
    stepper = Stepper(run.agent, 100_000)
    for number in range(4):
        if number == 2 and halts:
            run.save()
            ranks.any(False)  # the first rank has written
            run = Run(small_plan(), folder, ranks)
            stepper = Stepper(run.agent, 100_000)
            found = run.checkpoints.latest()
            assert found is not None
            run.restore(*found)
        stepper.step()
    return torch.cat([p.detach().reshape(-1) for p in run.agent.policy.parameters()])


def everything(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """All that the tests of several ranks look at, by processes that are started once."""
    early, late = trained(ranks, 2, 50)
    whole, halted = (resumed(ranks, folder / str(halts), halts) for halts in (False, True))
    return {"early": early, "late": late, "whole": whole, "halted": halted}

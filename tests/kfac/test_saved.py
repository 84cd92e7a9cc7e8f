"""States of other devices, and of other optimisers."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geonpg.kfac import FixedGaussian, HessianFree, NaturalGradient
from geonpg.kfac.hessian_free import Cases, Problem

GPU_STATE = torch.arange(16, dtype=torch.uint8)  # a CUDA generator's: a seed and an offset, eight bytes each


def trained(steps: int, state: dict[str, Any] | None = None) -> tuple[NaturalGradient, Tensor]:
    """An optimiser after some steps, and the parameters then."""
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)), torch.randn(20, 2)
    optimizer = NaturalGradient(module, FixedGaussian(), seed=3)
    if state is not None:
        optimizer.load_state_dict(state)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = 0.5 * (module(x) - 1).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return optimizer, optimizer.geometry.network.layout.read()


def state_of_a_gpu(generator: Tensor = GPU_STATE) -> dict[str, Any]:
    state = copy.deepcopy(trained(3)[0].state_dict())
    state["state"]["generator"] = generator
    return state


def test_E1_a_state_of_another_device_loads_and_goes_on_the_same_way_every_time() -> None:
    (first, ends), (_, again) = (trained(4, state_of_a_gpu()) for _ in range(2))
    assert first.steps == 7
    assert first.rejected == 0
    assert torch.equal(ends, again)
    assert not torch.equal(ends, trained(4, state_of_a_gpu(GPU_STATE + 1))[1]), "the draws come from the saved state"


def test_E1_on_the_same_device_the_draws_go_on_where_they_were() -> None:
    saved, fresh = trained(3)[0], trained(0)[0]
    assert not torch.equal(saved.generator.get_state(), fresh.generator.get_state())
    fresh.load_state_dict(copy.deepcopy(saved.state_dict()))
    assert torch.equal(saved.generator.get_state(), fresh.generator.get_state())


def adam_state() -> dict[str, Any]:
    module = nn.Linear(1, 1)
    adam = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 1)).sum().backward()
    adam.step()
    return adam.state_dict()


@pytest.mark.parametrize(
    "state", [adam_state(), {}, {"state": None, "param_groups": []}], ids=["adam", "empty", "none"]
)
def test_E17_a_foreign_state_is_refused_in_a_sentence(state: dict[str, Any]) -> None:
    optimizer, before = trained(1)
    kept = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match="this is no state of NaturalGradient: it lacks "):
        optimizer.load_state_dict(state)
    assert torch.equal(optimizer.state_dict()["state"]["gradient"], kept["state"]["gradient"])
    assert torch.equal(optimizer.geometry.network.layout.read(), before)


def test_E17_hessian_free_refuses_a_foreign_state_too() -> None:
    x = torch.randn(4, 2)
    problem = Problem(nn.Linear(2, 1), FixedGaussian(), Cases(x, x[:, :1], lambda z, t: (z - t).square().sum(-1), 1))
    with pytest.raises(ValueError, match="this is no state of HessianFree: it lacks y, damping"):
        HessianFree(problem, problem.layout.read()).load_state_dict(adam_state())

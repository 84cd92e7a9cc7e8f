"""The pieces of an update."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from geonpg.agents.updates import backward, clip_shared_gradients, limit_step, standardised
from geonpg.kfac import ALONE, Constant, FixedGaussian, KlSearch, NaturalGradient, TrustRegion


def test_advantages_are_divided_by_their_deviation_or_by_the_floor() -> None:
    wide = torch.tensor([1.0, 3.0, 5.0])
    torch.testing.assert_close(standardised(wide, 0.1, ALONE), torch.tensor([-1.0, 0.0, 1.0]))
    narrow = 0.01 * wide
    torch.testing.assert_close(standardised(narrow, 0.1, ALONE), torch.tensor([-0.2, 0.0, 0.2]))
    torch.testing.assert_close(standardised(narrow, 0.0, ALONE), torch.tensor([-1.0, 0.0, 1.0]))


@pytest.mark.parametrize("control", [TrustRegion(), KlSearch()], ids=["predicted", "actual"])
def test_annealing_shortens_steps_in_proportion_to_what_is_left(control: TrustRegion | KlSearch) -> None:
    optimizer = NaturalGradient(nn.Linear(1, 1), FixedGaussian(), control=control)
    limit_step(optimizer, 0.04, 0.5)
    assert optimizer.control == replace(control, max_kl=0.01)
    limit_step(optimizer, 0.04, 0.0)
    assert optimizer.control.max_kl == pytest.approx(4e-6)


def test_a_controller_of_the_users_own_stays() -> None:
    optimizer = NaturalGradient(nn.Linear(1, 1), FixedGaussian(), control=Constant(0.1))
    limit_step(optimizer, 0.04, 0.5)
    assert optimizer.control == Constant(0.1)


def test_gradients_are_clipped_together_and_frozen_parameters_have_none() -> None:
    one, other, frozen = (torch.zeros(1, requires_grad=True) for _ in range(3))
    one.grad, other.grad = torch.tensor([3.0]), torch.tensor([4.0])
    clip_shared_gradients([one, other, frozen], 1.0, ALONE)
    torch.testing.assert_close(torch.cat([one.grad, other.grad]), torch.tensor([0.6, 0.8]))
    assert frozen.grad is None


def test_a_loss_of_frozen_parameters_has_no_gradients() -> None:
    parameter = torch.ones(1, requires_grad=True)
    backward((2 * parameter).sum())
    assert parameter.grad == 2
    backward(torch.ones(1).sum())

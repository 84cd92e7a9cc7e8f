"""The pieces of an update."""

import torch

from geonpg.agents.updates import backward, clip_shared_gradients, standardised
from geonpg.kfac import ALONE


def test_advantages_are_divided_by_their_deviation_or_by_the_floor() -> None:
    wide = torch.tensor([1.0, 3.0, 5.0])
    torch.testing.assert_close(standardised(wide, 0.1, ALONE), torch.tensor([-1.0, 0.0, 1.0]))
    narrow = 0.01 * wide
    torch.testing.assert_close(standardised(narrow, 0.1, ALONE), torch.tensor([-0.2, 0.0, 0.2]))
    torch.testing.assert_close(standardised(narrow, 0.0, ALONE), torch.tensor([-1.0, 0.0, 1.0]))


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

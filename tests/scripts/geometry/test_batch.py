"""The recorded batch: returns to go, and the same data for the same seed."""

import pytest
import torch

from geonpg.scripts.geometry.batch import DISCOUNT, Interaction, record_batch, standardised_returns


def test_returns_are_discounted_within_an_episode() -> None:
    nothing = torch.zeros(3, 1)
    returns = standardised_returns(Interaction(nothing, nothing, [1.0, 2.0, 4.0], [False, True, False]))
    raw = torch.tensor([1 + DISCOUNT * 2, 2, 4], dtype=torch.float64)
    assert returns.tolist() == pytest.approx(((raw - raw.mean()) / raw.std()).tolist())


def test_a_seed_is_a_batch() -> None:
    one, same, other = (record_batch(30, seed) for seed in (0, 0, 1))
    assert one.observations.shape == (30, 11)
    assert one.actions.shape == (30, 3)
    assert torch.equal(one.actions, same.actions)
    assert torch.equal(one.advantages, same.advantages)
    assert not torch.equal(one.actions, other.actions)

"""What all experiments share; what they find is tested with the command."""

import math

import torch

from geonpg.scripts.geometry.study import Check, one_thread


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_a_number_beyond_its_limit_or_none_at_all_fails_its_check() -> None:
    assert Check("distance", 1e-7, 1e-6).passed
    assert not Check("distance", 1e-5, 1e-6).passed
    assert not Check("distance", math.nan, 1e-6).passed
    assert str(Check("distance", 1e-5, 1e-6)) == "distance: 1.0e-05, beyond the limit of 1e-06"

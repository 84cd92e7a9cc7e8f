"""Random edits of a state: every kind is made, and always to a copy."""

import random

import torch

from geonpg.scripts.benches.edits import edited


def test_every_edit_changes_a_copy() -> None:
    state = {"a": {"b": 1, "c": [1.5, "x"]}, "d": torch.ones(2, 3), "e": (torch.zeros(2),), "f": None}
    chance = random.Random(0)
    told = set()
    for _ in range(300):
        new, what = edited(state, chance)
        told.add(what.split()[0])
        assert repr(new) != repr(state)
    assert told == {"removes", "renames", "adds", "makes"}
    assert repr(state) == repr({**state})

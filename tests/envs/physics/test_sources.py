"""Compiled code that is kept on the disk: it is used again, and never for something that has changed since."""

import ctypes
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from geonpg.envs.physics import Function, constants_type, summed
from geonpg.envs.physics.functions import SIMULATION
from geonpg.envs.physics.sources import MARK, checked, fingerprint
from geonpg.envs.physics.tables import Table

TASK = """
from geonpg.envs.physics import helper, observation
import kept_numbers
from kept_numbers import WEIGHT, doubled

@helper
def inner(x):
    return doubled(x)

@observation
def observe(sim, k):
    sim.observation[0] = WEIGHT
    sim.observation[1] = kept_numbers.OTHER
    sim.observation[2] = inner(sim.qpos[0])
"""
NUMBERS = """
from geonpg.envs.physics import helper
WEIGHT, OTHER = {}, {}
@helper
def doubled(x):
    return {} * x
"""


def observed(function: Function, checks: bool) -> list[float]:
    """What a function makes of the position 10."""
    kind, seen = constants_type(()), np.zeros(3)
    simulation, constants = Table(SIMULATION, observation=seen, qpos=np.array([10.0])), Table(kind)
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(function.address(kind, checks))
    call(simulation.address, constants.address)
    return seen.tolist()


@pytest.mark.parametrize("checks", [False, True])
def test_a_change_in_another_file_counts(checks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba itself looks at the file of the function only, and would take what it has kept."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it tells files apart by the second they were written in
    (tmp_path / "kept_task.py").write_text(TASK)
    for numbers, expected in (((1.0, 2.0, 2), [1, 2, 20]), ((3.0, 4.0, 5), [3, 4, 50]), ((1.0, 2.0, 2), [1, 2, 20])):
        (tmp_path / "kept_numbers.py").write_text(NUMBERS.format(*numbers))
        assert observed(import_module("kept_task").observe, checks) == expected
        del sys.modules["kept_task"], sys.modules["kept_numbers"]
    kept = [path.name for path in (tmp_path / "__pycache__").glob("kept_task.observe*.nbi")]
    assert len(kept) == 2
    assert all(f"{MARK}checked" in name for name in kept) is checks


def test_the_letters_change_with_the_code() -> None:
    def one(x):
        return x + 1

    def same(x):
        return x + 1

    def other(x):
        return x + 2

    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


def test_a_helper_that_calls_itself_is_checked_too() -> None:
    made: dict = {}
    checked(summed.py_func, made)
    numbers = np.random.default_rng(0).normal(size=1000)
    assert made[summed.py_func](numbers) == summed(numbers) == numbers.sum()

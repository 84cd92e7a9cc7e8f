"""The form of a state, and what differs from it."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from geonpg.agents import ACKTR
from geonpg.agents.forms import AnyLength, Anything, Later, Many, Maybe, OneOf, misfit
from geonpg.agents.state import form_of, get_state
from geonpg.envs import Frames, Normalize, is_native, make_vec
from geonpg.kfac.solvers import SOLVERS

FITS: list[tuple[Any, Any]] = [
    (3, 0), (1.5, 0.0), ("a", "b"), (True, False), (None, None), (None, Maybe(0)), (3, Maybe(0)),
    ([1, 2], Many(0)), ([], Many(0)), (1, OneOf((0.0, 0))), ({"a": 1}, {"a": 0}), ({}, {"a": Later(0)}),
    ({"a": 1}, {"a": Later(0)}), ((1, [2.0]), (0, [0.0])), (object(), Anything()),
    (np.ones((2, 3)), np.zeros((2, 3))), (torch.ones(2), torch.zeros(2)), (torch.ones(7), AnyLength(torch.float32)),
]  # fmt: skip
MISFITS: list[tuple[Any, Any, str]] = [
    (True, 0, "it is bool, not int"),
    (1, 0.0, "it is int, not float"),
    (None, 0, "it is NoneType, not int"),
    ("1", Maybe(0), "it is str, not int"),
    ((1,), Many(0), "it is a tuple of 1, not a list"),
    ([1, "2"], Many(0), "it.1 is str, not int"),
    ([1], [0, 0], "it is a list of 1, not a list of 2"),
    ({}, {"a": 0}, "it has no entry 'a'"),
    ({"a": 1, "b": 1}, {"a": 0}, "it has an unknown entry 'b'"),
    ({"a": {"b": ()}}, {"a": {"b": []}}, "it.a.b is a tuple of 0, not a list of 0"),
    (np.ones(2), torch.ones(2), "it is an array of float64 [2], not a tensor of float32 [2]"),
    (np.ones((3, 2)), np.ones((2, 3)), "it is an array of float64 [3, 2], not an array of float64 [2, 3]"),
    (torch.ones(2).double(), torch.ones(2), "it is a tensor of float64 [2], not a tensor of float32 [2]"),
    (torch.ones(2, 2), AnyLength(torch.float32), "it is a tensor of float32 [2, 2], not a row of torch.float32"),
    ("x", OneOf(([], 0)), "it is str, not int"),
]


@pytest.mark.parametrize(("value", "form"), FITS)
def test_what_is_of_a_form_fits(value: Any, form: Any) -> None:
    assert misfit(value, form) == ""


@pytest.mark.parametrize(("value", "form", "words"), MISFITS)
def test_B3_what_differs_is_named(value: Any, form: Any, words: str) -> None:
    assert misfit(value, form) == words


NATIVE = sorted(name for name in gymnasium.registry if is_native(name))


@pytest.mark.parametrize("env_id", [*NATIVE, "CartPole-v1", "FrozenLake-v1"])
def test_B3_a_trained_agent_is_of_the_form_of_a_new_one(env_id: str) -> None:
    """Whatever the method, the solver and the wrappers."""
    number = NATIVE.index(env_id) if env_id in NATIVE else 0
    method, solver = ("ng", "mid", "geo", "geof")[number % 4], list(SOLVERS)[number % 3]
    agents = []
    for _ in range(2):
        env = make_vec(env_id, 2, seed=0)
        env = Normalize(env, observations=env_id != "FrozenLake-v1")
        env = Frames(env, 2) if number % 2 else env
        small = {"net_arch": [4]}
        agents.append(ACKTR("MlpPolicy", env, n_steps=4, method=method, solver=solver, policy_kwargs=small))
    trained, new = agents
    trained.learn(16)
    state = get_state(trained)
    assert misfit(state, form_of(new, state)) == ""
    assert misfit({**state, "optimizer": state["policy"]}, form_of(new, state)) != ""

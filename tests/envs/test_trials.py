"""Functions with mistakes in them: each is one sentence that names the function, before anything runs unchecked."""

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from own_robots import Jumper, forget

from geonpg.envs import make_vec, register, trials
from geonpg.envs.physics import ending, first_state, helper, observation, progress, reward
from geonpg.errors import Refused


@helper
def too_far(x):
    return x[len(x) + 3]


@helper
def deeper(x):
    return too_far(x)


@observation
def beyond(sim, k):
    for i in range(8):
        sim.observation[i] = 0.0


@observation
def in_a_helper(sim, k):
    sim.observation[:] = deeper(sim.qpos)


@observation
def not_alike(sim, k):
    sim.observation[:] = sim.qpos


@observation
def some(sim, k):
    sim.observation[:4] = 1.0


@observation
def unknown_constant(sim, k):
    sim.observation[:] = k.down


@observation
def unknown_field(sim, k):
    sim.observation[:] = sim.quaternions[0]


@observation
def unknown_name(sim, k):
    sim.observation[:] = nothing  # noqa: F821


@observation
def too_few(sim):
    pass


@observation
def text(sim, k):
    sim.observation[0] = "high"


@observation
def forces(sim, k):
    sim.observation[:] = sim.cfrc_ext[1, 5]


@observation
def places(sim, k):
    sim.observation[:] = sim.qpos[0]
    sim.observation[6] = sim.site_xpos[0, 2]


@progress
def endless(sim, k):
    return np.inf


@reward
def no_number(sim, k, before):
    return (sim.qpos[0] - sim.qpos[0]) / 0.0


@ending
def complains(sim, k):
    if sim.qpos[0] < 10:
        raise RuntimeError("too low")
    return False


@first_state
def lost(sim, k, rng):
    sim.qpos[5] = 0.0


@first_state
def nowhere(sim, k, rng):
    sim.qpos[0] = np.nan


HERE = f"({Path(__file__).name}, line "
BOUNDS = "observe of Wrong raises IndexError: index is out of bounds, where observation_size is "
UNCOMPILED = "observe of Wrong cannot be compiled: "
NO_SETTER = "No implementation of function Function(<built-in function setitem>) found for signature: "
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "beyond": ({"observe": beyond}, f"{BOUNDS}7"),
    "helper": ({"observe": in_a_helper}, f"{BOUNDS}7"),
    "shorter": ({"observation_size": 6}, f"{BOUNDS}6"),
    "shape": ({"observe": not_alike}, "observe of Wrong raises ValueError: cannot assign slice "),
    "some": ({"observe": some}, "observe of Wrong fills in 4 numbers, but its observation_size is 7"),
    "longer": ({"observation_size": 9}, "observe of Wrong fills in 7 numbers, but its observation_size is 9"),
    "constant": ({"observe": unknown_constant}, f"{UNCOMPILED}Unknown attribute 'down' of type k {HERE}"),
    "field": ({"observe": unknown_field}, f"{UNCOMPILED}Unknown attribute 'quaternions' of type sim {HERE}"),
    "global": ({"observe": unknown_name}, f"{UNCOMPILED}NameError: name 'nothing' is not defined"),
    "arguments": ({"observe": too_few}, f"{UNCOMPILED}Signature mismatch: 2 argument types given"),
    "text": (
        {"observe": text},
        f"{UNCOMPILED}{NO_SETTER}setitem(array(float64, 1d, C), Literal[int](0), Literal[str](high)) {HERE}",
    ),
    "forces": (
        {"observe": forces, "contact_forces": False},
        "Wrong looks at cfrc_ext: it needs contact_forces = True",
    ),
    "joints": (
        {"observe": places, "joints_only": True},
        "Wrong looks at more than qpos and qvel: it needs joints_only = False",
    ),
    "progress": ({"progress": endless}, "progress of Wrong computes inf"),
    "reward": ({"reward": no_number}, "reward of Wrong computes nan"),
    "ended": ({"ended": complains}, "ended of Wrong raises RuntimeError: too low"),
    "reset": ({"reset": lost}, "reset of Wrong raises IndexError: index is out of bounds"),
    "first": ({"reset": nowhere}, "reset of Wrong draws a state that is not finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_sentence(case: str, capfd: pytest.CaptureFixture[str]) -> None:
    """And numba prints nothing beside it."""
    changed, sentence = WRONG[case]
    register("Wrong-v0", type("Wrong", (Jumper,), changed))
    hook = sys.unraisablehook
    for make in (make_vec, gymnasium.make):
        with pytest.raises(Refused, match=r".") as refused:
            make("Wrong-v0")
        assert str(refused.value).startswith(sentence)
        assert "\n" not in str(refused.value)
    assert sys.unraisablehook is hook
    assert "Exception ignored" not in capfd.readouterr().err
    forget("Wrong-v0")


def test_a_class_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, honest = [], trials.Trial.run
    monkeypatch.setattr(trials.Trial, "run", lambda self: (tried.append(self.name), honest(self)))
    for name in ("One", "Two"):
        register(f"{name}-v0", type(name, (Jumper,), {}))
        for _ in range(2):
            make_vec(f"{name}-v0", 2)
        forget(f"{name}-v0")
    assert tried == ["One", "Two"]

"""Environments that nobody can train on are refused by name."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from toy_envs import ACTIONS, OBSERVATIONS, World

from geonpg.envs import make_vec
from geonpg.errors import Refused

VECTOR, BOX = OBSERVATIONS["vector"], ACTIONS["Box"]
SMALL_IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
GRID = spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]))
SEEN = (
    "observations of World must be a Box of one or more dimensions, Discrete, MultiDiscrete of one dimension,"
    " MultiBinary, or a Dict of those, not "
)
ACTED = (
    "actions of World must be a Box of at least one number, Discrete, or MultiDiscrete or MultiBinary of one dimension,"
    " not "
)
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "text": (spaces.Text(5), BOX, SEEN + "Text(1, 5, charset=0123"),
    "sequence": (spaces.Sequence(VECTOR), BOX, SEEN + "Sequence("),
    "graph": (spaces.Graph(VECTOR, None), BOX, SEEN + "Graph("),
    "tuple": (spaces.Tuple((VECTOR, VECTOR)), BOX, SEEN + "Tuple("),
    "number": (spaces.Box(-1, 1, ()), BOX, SEEN + "Box(-1.0, 1.0, (), float32)"),
    "empty": (spaces.Box(-1, 1, (0,)), BOX, SEEN + "Box([], [], (0,), float32)"),
    "grid": (GRID, BOX, SEEN + "MultiDiscrete([[2 3] [4 5]])"),
    "nested": (spaces.Dict({"a": spaces.Dict({"b": VECTOR})}), BOX, SEEN + "Dict('a': Dict("),
    "small image": (spaces.Dict({"view": SMALL_IMAGE}), BOX, "must have at least 36 x 36 pixels, not Dict('view': "),
    "from 2 on": (
        spaces.Discrete(3, start=2),
        BOX,
        "must be counted from 0, as SB3 does, not as in Discrete(3, start=2)",
    ),
    "grid of choices": (VECTOR, GRID, ACTED + "MultiDiscrete([[2 3] [4 5]])"),
    "grid of switches": (VECTOR, spaces.MultiBinary((2, 2)), ACTED + "MultiBinary((2, 2))"),
    "tuple of actions": (VECTOR, spaces.Tuple((BOX, BOX)), ACTED + "Tuple("),
    "no numbers": (VECTOR, spaces.Box(-1, 1, (0,)), ACTED + "Box([], [], (0,), float32)"),
    "choices from 1": (VECTOR, spaces.Discrete(3, start=1), "choices of World must be counted from 0"),
    "no actions": (VECTOR, None, ACTED + "None"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_B5_what_cannot_be_trained_on_is_refused_by_name(kind: str) -> None:
    seen, acted, sentence = REFUSED[kind]
    with pytest.raises(Refused, match="World") as refusal:
        make_vec(lambda: World(seen, acted))
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("seen", OBSERVATIONS)
def test_all_others_are_not(seen: str) -> None:
    for acted in ACTIONS.values():
        make_vec(lambda acted=acted: World(OBSERVATIONS[seen], acted))


class Seedless(World):
    def reset(self) -> tuple[Any, dict[str, Any]]:
        return super().reset()


class Anything(World):
    def reset(self, **anything: Any) -> tuple[Any, dict[str, Any]]:
        return super().reset(**anything)


def test_B5_reset_must_take_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match=r"^reset of Seedless must take a seed, as gymnasium's does: def reset"):
        make_vec(lambda: Seedless(VECTOR, BOX))
    make_vec(lambda: Anything(VECTOR, BOX), seed=3).reset()


def test_small_images_alone_are_taken() -> None:
    assert isinstance(make_vec(lambda: World(SMALL_IMAGE, BOX)).observation_space, gymnasium.spaces.Box)

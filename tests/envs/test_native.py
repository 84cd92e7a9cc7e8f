"""Which environments run natively."""

import gymnasium
import pytest
from native_envs import IDS

from geonpg.envs import TASKS, is_native


def test_the_twenty_ids_are_native() -> None:
    assert sorted(env_id for env_id in gymnasium.registry if is_native(env_id)) == sorted(IDS)
    assert {str(gymnasium.spec(env_id).entry_point) for env_id in IDS} == set(TASKS)


def test_an_id_with_wrappers_of_its_own_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be left out."""
    assert not is_native("CartPole-v1")
    assert not is_native("Rocket-v4")
    env = gymnasium.wrappers.RescaleAction(gymnasium.make("Hopper-v5"), -2, 2)
    assert env.spec is not None
    env.spec.id = "Rescaled-v0"
    monkeypatch.setitem(gymnasium.registry, "Rescaled-v0", env.spec)
    assert not is_native("Rescaled-v0")

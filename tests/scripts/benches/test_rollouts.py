"""Rollouts that are measured visit the very states that their limit replays."""

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from geonpg.scripts.benches import rollouts as bench_rollouts
from geonpg.scripts.benches.limit import record
from geonpg.scripts.benches.ours import native_env, our_agent, settings_of
from geonpg.scripts.benches.rollouts import Rollouts, rollout_and_limit

ID, N_ENVS, NUMBER = "Walker2d-v4", 3, 2


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_rollouts, "UPDATES", 2)


@pytest.fixture
def rollouts() -> Iterator[Rollouts]:
    with ExitStack() as stack:
        yield Rollouts(our_agent(ID, settings_of(ID, n_envs=N_ENVS), stack), NUMBER)


def test_they_can_be_taken_again(rollouts: Rollouts) -> None:
    physics, ends = native_env(rollouts.agent).simulations.physics, []
    for _ in range(3):
        rollouts.restore()
        assert rollouts.take() == NUMBER * N_ENVS * rollouts.agent.n_steps
        ends.append(physics.copy())
    np.testing.assert_array_equal(ends[1:], ends[:-1])


def test_the_limit_has_their_actions_and_their_episodes(rollouts: Rollouts) -> None:
    env = native_env(rollouts.agent)
    actions = rollouts.actions()
    ends = env.simulations.physics.copy()
    assert actions.shape == (NUMBER * rollouts.agent.n_steps, N_ENVS, 6)
    assert np.abs(actions).max() == 1, "clipped, as the physics sees them"
    rollouts.restore()
    recorded = record(env, actions)
    np.testing.assert_array_equal(recorded.ends, ends)
    assert max(len(mine) for mine in recorded.episodes) > 2, "an untrained walker falls"


def test_both_take_the_same_steps() -> None:
    with ExitStack() as stack:
        found = rollout_and_limit(ID, N_ENVS, NUMBER, stack)
        for contestant in found.values():
            contestant.prepare()
            assert contestant.run() == NUMBER * N_ENVS * 64
    assert set(found) == {"rollout", "rollout_limit"}


def test_a_limit_of_other_states_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Rollouts.actions

    def wrong(rollouts: Rollouts) -> object:
        return honest(rollouts) / 2

    monkeypatch.setattr(Rollouts, "actions", wrong)
    with ExitStack() as stack, pytest.raises(RuntimeError, match="does not end where our run did"):
        rollout_and_limit(ID, N_ENVS, NUMBER, stack)

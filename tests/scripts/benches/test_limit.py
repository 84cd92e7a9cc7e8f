"""The limit replays the very physics that our environments ran."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import mujoco
import pytest

from geonpg.envs import MujocoVecEnv
from geonpg.scripts.benches.limit import Array, Episodes, check_ends, draw_actions, native, record, replay

N_ENVS = 3


@pytest.fixture
def walker() -> Iterator[MujocoVecEnv]:
    env = native("Walker2d-v4", N_ENVS)
    yield env
    env.close()


def replayed(env: MujocoVecEnv, recorded: Episodes) -> Array:
    simulations = [mujoco.MjData(env.reference.model) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        return replay(env, recorded, simulations, threads)


@pytest.mark.parametrize("steps", range(20, 50))
def test_a_replay_ends_where_the_run_did(walker: MujocoVecEnv, steps: int) -> None:
    """Whether episodes end on the way, at the last step or not at all."""
    actions = draw_actions(walker, steps)
    recorded = record(walker, actions)
    assert [sum(len(a) for _, a in mine) for mine in recorded.episodes] == [steps] * N_ENVS
    check_ends(replayed(walker, recorded), recorded.ends)


def test_an_altered_replay_is_noticed(walker: MujocoVecEnv) -> None:
    recorded = record(walker, draw_actions(walker, 5))
    state, actions = recorded.episodes[1][0]
    altered = state.copy()
    altered[1] += 1e-9  # the torso's position; the first entry is the time
    changed = replace(recorded, episodes=[recorded.episodes[0], [(altered, actions)], recorded.episodes[2]])
    with pytest.raises(RuntimeError, match=r"environments \[1\]"):
        check_ends(replayed(walker, changed), recorded.ends)

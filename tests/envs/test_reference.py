"""gymnasium's infos, from gymnasium's own code."""

from typing import Any

import numpy as np
import pytest
from native_envs import IDS, actions_for, gym_env

from geonpg.envs import MujocoVecEnv
from geonpg.envs.reference import Reference

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def test_every_field_of_the_protocol_is_gymnasiums() -> None:
    """And each of them is one that some environment has, so that a typing error in its name is found."""
    ours = {name for name in (*Reference.__annotations__, *vars(Reference)) if not name.startswith(("__", "_abc_"))}
    ours -= {"_is_protocol", "_is_runtime_protocol"}
    theirs = {name for env_id in IDS for name in dir(gym_env(env_id).unwrapped)}
    assert {"dt", "model", "step", "_healthy_z_range"} < ours <= theirs


@pytest.mark.parametrize("env_id", IDS)
def test_E17_infos_are_gymnasiums_where_they_are_asked_for(env_id: str) -> None:
    """With the same results, through resets and into a restored vector."""
    venv, plain = MujocoVecEnv(env_id, 2, infos=True), MujocoVecEnv(env_id, 2)
    originals = [gym_env(env_id) for _ in range(2)]
    for env in (venv, plain):
        env.seed(7)
        env.reset()
    for i, env in enumerate(originals):
        assert_equal(venv.reset_infos[i], env.reset(seed=7 + i)[1])
    for k, actions in enumerate(actions_for(venv, 60)):
        if k == 30:
            state = venv.get_state()
            venv = MujocoVecEnv(env_id, 2, infos=True)
            venv.reset()
            venv.set_state(state)
        observations, rewards, dones, infos = venv.step(actions)
        expected = plain.step(actions)
        assert np.array_equal(observations, expected[0])
        assert np.array_equal(rewards, expected[1])
        for i, env in enumerate(originals):
            for ours in ("terminal_observation", "TimeLimit.truncated", "episode"):
                assert (infos[i].pop(ours, None) is not None) == dones[i]
            assert_equal(infos[i], env.step(actions[i])[4])
            if dones[i]:
                assert_equal(venv.reset_infos[i], env.reset()[1])


@pytest.mark.parametrize("env_id", ["Ant-v4", "Ant-v5", "Humanoid-v4", "HalfCheetah-v5"])
def test_infos_after_a_state_that_was_set_are_gymnasiums(env_id: str) -> None:
    """Velocities begin where the state was put, not where the environment was before."""
    venv, original = MujocoVecEnv(env_id, 2, infos=True), gym_env(env_id)
    inner: Any = original.unwrapped
    venv.seed(6)
    venv.reset()
    original.reset(seed=7)
    actions = actions_for(venv, 3)
    for row in actions[:2]:
        venv.step(row)
        original.step(row[1])
    qpos, qvel = inner.data.qpos.copy(), inner.data.qvel.copy()
    qpos[0] += 5
    inner.set_state(qpos, qvel)
    venv.env_method("set_state", qpos, qvel, indices=1)
    assert_equal(venv.step(actions[2])[3][1], original.step(actions[2][1])[4])


def test_a_state_with_infos_stays_as_it_was() -> None:
    """What follows does not change it; into the environments that it is of it goes back."""
    venv = MujocoVecEnv("Ant-v4", 2, infos=True)
    venv.seed(0)
    venv.reset()
    actions = actions_for(venv, 12)
    for row in actions[:6]:
        venv.step(row)
    state = venv.get_state()
    runs = []
    for _ in range(2):
        runs.append([info for row in actions[6:] for info in venv.step(row)[3]])
        venv.set_state(state)
    for one, other in zip(*runs, strict=True):
        assert_equal(one, other)


def assert_equal(infos: dict[str, Any], expected: dict[str, Any]) -> None:
    expected.pop("TimeLimit.truncated", None)  # there if another test has imported rl_zoo3, which patches gymnasium
    assert infos.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(infos[name], value), name


def test_E17_infos_go_on_from_a_state_without_them() -> None:
    plain, venv = MujocoVecEnv("Ant-v4", 2), MujocoVecEnv("Ant-v4", 2, infos=True)
    plain.seed(0)
    plain.reset()
    venv.reset()
    venv.set_state(plain.get_state())
    actions = actions_for(plain, 1)[0]
    _, rewards, _, infos = venv.step(actions)
    assert np.array_equal(plain.step(actions)[1], rewards)
    parts = [sum(info[f"reward_{part}"] for part in ("forward", "ctrl", "survive")) for info in infos]
    assert parts == pytest.approx(rewards.tolist())

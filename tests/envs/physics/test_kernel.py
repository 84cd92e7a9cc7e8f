"""Rollouts by one call: the same for any number of threads, as step by step, and as gymnasium's environments."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_envs import IDS, actions_for, gym_env
from rollout_paths import Played, assert_same, by_one_call, by_steps, layers_for, noise_for

from geonpg.envs import MujocoVecEnv
from geonpg.envs.physics.kernel import STRETCH
from geonpg.errors import Refused

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def begun(env_id: str, n: int = 8, threads: int = 1, **kwargs: Any) -> tuple[MujocoVecEnv, Any]:
    """Environments some steps after their beginning, and what they show."""
    venv = MujocoVecEnv(env_id, n, threads=threads, **kwargs)
    venv.seed(3)
    venv.reset()
    for row in actions_for(venv, 3):
        observations = venv.step(row)[0]
    return venv, observations


@pytest.mark.parametrize("env_id", IDS)
def test_a_rollout_is_as_many_steps_for_any_number_of_threads(env_id: str) -> None:
    """Two rollouts, one after the other, through time limits and resets: what happens, and the state at their end.

    They are longer than the stretches of steps after which a thread takes on another environment.
    """
    venv, first = begun(env_id, max_episode_steps=8)
    layers, noise = layers_for(venv), [noise_for(venv, steps, seed=steps) for steps in (7, STRETCH + 3)]
    truth = [by_steps(venv, first, layers, noise[0])]
    truth.append(by_steps(venv, truth[0].last, layers, noise[1]))
    end = venv.get_state()
    assert all(len(played.ends) for played in truth)
    for threads in (1, 2, 3, 8):
        rolling, _ = begun(env_id, threads=threads, max_episode_steps=8)
        for played, drawn in zip(truth, noise, strict=True):
            assert_same(by_one_call(rolling, layers, drawn), played)
        assert_same(rolling.get_state(), end)
        rolling.close()


@pytest.mark.parametrize(
    ("env_id", "limit", "own"),
    [("Hopper-v4", 18, {}), ("InvertedPendulum-v5", 5, {}), ("Humanoid-v5", 20, {"healthy_z_range": (1.25, 2.0)})],
    ids=str,
)
def test_episodes_that_end_by_themselves(env_id: str, limit: int, own: dict[str, Any]) -> None:
    """And by a time limit, and go on in the same rollout."""
    venv, first = begun(env_id, 4, max_episode_steps=limit, **own)
    layers, noise = layers_for(venv, (5, 6), "relu"), noise_for(venv, 60, 1.0)
    truth = by_steps(venv, first, layers, noise)
    assert {0, 1} == set(truth.ends[:, 4]), "of both kinds"
    rolling, _ = begun(env_id, 4, threads=3, max_episode_steps=limit, **own)
    assert_same(by_one_call(rolling, layers, noise), truth)
    assert_same(rolling.get_state(), venv.get_state())
    rolling.close()


@pytest.mark.parametrize("threads", [2, 5])
def test_rollouts_of_many_stretches(threads: int) -> None:
    """Whoever takes on an environment waits for whoever has it; more threads than cores, and slow ones among them."""
    venv, _ = begun("Walker2d-v4", 5)
    layers, noise = layers_for(venv), noise_for(venv, 12 * STRETCH + 5)
    truth, end = by_one_call(venv, layers, noise), venv.get_state()
    rolling, _ = begun("Walker2d-v4", 5, threads=threads)
    assert_same(by_one_call(rolling, layers, noise), truth)
    assert_same(rolling.get_state(), end)
    rolling.close()


def test_steps_and_rollouts_may_follow_each_other() -> None:
    """In any order; actions in double precision in between change the rewards of their own step only."""
    stepping, seen = begun("Ant-v5", 3, max_episode_steps=9)
    mixed, _ = begun("Ant-v5", 3, threads=2, max_episode_steps=9)
    layers = layers_for(mixed)
    for k in range(4):
        noise = noise_for(mixed, 5, seed=k)
        played = by_steps(stepping, seen, layers, noise)
        assert_same(by_one_call(mixed, layers, noise), played)
        actions = actions_for(mixed, 1, np.float64, seed=k)[0]
        one, other = stepping.step(actions), mixed.step(actions)
        assert_same(one[:3], other[:3])
        seen = one[0]
    mixed.close()


def replay(played: Played, envs: list[Any], now: list[Any], low: Any, high: Any) -> int:
    """Take the same actions in gymnasium's environments; everything must be equal. Returns how many episodes ended."""
    ended = 0
    for t, actions in enumerate(played.actions.clip(low, high)):
        assert np.array_equal(played.seen[t], now)
        for i, env in enumerate(envs):
            now[i], reward, terminated, truncated, _ = env.step(actions[i])
            assert played.rewards[t, i] == reward
            assert played.dones[t, i] == (terminated or truncated)
            if terminated or truncated:
                row = played.ends[:, :2].tolist().index([t, i])
                assert played.ends[row, 4] == (truncated and not terminated)
                assert np.array_equal(played.finals[row], now[i])
                now[i], ended = env.reset()[0], ended + 1
    assert np.array_equal(played.last, now)
    return ended


def played_as_in_gymnasium(env_id: str, own: dict[str, Any]) -> Played:
    """A rollout through several episodes, of which gymnasium's environments have made the same."""
    venv = MujocoVecEnv(env_id, 3, threads=2, max_episode_steps=22, **own)
    envs = [gym_env(env_id, max_episode_steps=22, **own) for _ in range(3)]
    venv.seed(5)
    venv.reset()
    played = by_one_call(venv, layers_for(venv), noise_for(venv, 50))
    now = [env.reset(seed=5 + i)[0] for i, env in enumerate(envs)]
    assert replay(played, envs, now, venv.action_space.low, venv.action_space.high) >= 6
    venv.close()
    return played


@pytest.mark.parametrize("env_id", ["HalfCheetah-v4", "Walker2d-v5", "Reacher-v4", "InvertedDoublePendulum-v5"])
def test_gymnasium_does_the_same_with_the_same_actions(env_id: str) -> None:
    played_as_in_gymnasium(env_id, {})


OF_BODIES = 14 * 6  # numbers that say which forces act on the world and the 13 bodies of Ant and of Humanoid
SHOW_FORCES = [
    ("Ant-v4", {"use_contact_forces": True}, OF_BODIES),
    ("Ant-v5", {}, OF_BODIES - 6),
    ("Humanoid-v4", {}, OF_BODIES),
    ("Humanoid-v5", {}, OF_BODIES - 6),
    ("HumanoidStandup-v4", {}, OF_BODIES),
    ("HumanoidStandup-v5", {}, OF_BODIES - 6),
]


@pytest.mark.parametrize(("env_id", "own", "size"), SHOW_FORCES, ids=str)
def test_contact_forces_in_rollouts_are_gymnasiums(env_id: str, own: dict[str, Any], size: int) -> None:
    """And are there: a rollout touches the ground, and what its observations end with is zero at other times."""
    forces = played_as_in_gymnasium(env_id, own).seen[..., -size:]
    touching = forces.any(axis=(0, 1))
    assert 0 < np.count_nonzero(touching) < size
    assert not forces[0].any(), "an episode begins without"


def calls_in_a_rollout(env_id: str, own: dict[str, Any], n: int, steps: int) -> int:
    """Count what the interpreter calls while it waits for a rollout: Python's functions, and C's by way of Python."""
    venv, _ = begun(env_id, n, threads=2, **own)
    layers, noise = layers_for(venv), noise_for(venv, steps)
    seen, actions = np.empty((*noise.shape[:2], *venv.observation_space.shape)), np.empty_like(noise)
    called: list[str] = []
    sys.setprofile(lambda frame, event, argument: called.append(event) if event in ("call", "c_call") else None)
    try:
        venv.roll(layers, noise, seen, actions)
    finally:
        sys.setprofile(None)
    venv.close()
    return len(called)


@pytest.mark.parametrize(("env_id", "own", "size"), SHOW_FORCES, ids=str)
def test_contact_forces_take_no_call_of_python(env_id: str, own: dict[str, Any], size: int) -> None:
    """Twenty times as many steps of environments make no more calls, but a few of numpy's that check longer arrays."""
    few, many = calls_in_a_rollout(env_id, own, 2, 5), calls_in_a_rollout(env_id, own, 5, 40)
    assert abs(many - few) < 10


def warnings_in(folder: Path) -> int:
    log = folder / "MUJOCO_LOG.TXT"
    return log.read_text().count("WARNING") if log.exists() else 0


def test_unstable_physics_is_gymnasiums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MuJoCo begins anew with a warning, in a rollout as in gymnasium, and writes no more of them than there."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    monkeypatch.chdir(tmp_path)
    venv, env = MujocoVecEnv("HalfCheetah-v4", 2, threads=1), gym_env("HalfCheetah-v4")
    monkeypatch.chdir(ours)
    venv.seed(4)
    venv.reset()
    inner: Any = env.unwrapped
    env.reset(seed=5)
    state = np.zeros(9), 1e12 * np.eye(9)[3]
    venv.env_method("set_state", *state, indices=1)
    inner.set_state(*state)
    played = by_one_call(venv, layers_for(venv), noise_for(venv, 20))
    assert played.seen[0, 1].max() == 1e12
    assert np.abs(played.last).max() < 100
    monkeypatch.chdir(theirs)
    for t, action in enumerate(played.actions[:, 1].clip(-1, 1)):
        observation, reward, _, _, _ = env.step(action)
        assert played.rewards[t, 1] == reward
        assert np.array_equal(observation, played.last[1] if t == 19 else played.seen[t + 1, 1])
    assert warnings_in(ours) == warnings_in(theirs) == 1


def test_healthy_physics_leaves_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for env_id in ("Ant-v4", "Humanoid-v5"):
        venv = MujocoVecEnv(env_id, 2, threads=2)
        venv.reset()
        by_one_call(venv, layers_for(venv), noise_for(venv, 30))
        by_steps(venv, venv.reset(), layers_for(venv), noise_for(venv, 30))
        venv.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("env_id", ["Hopper-v4", "InvertedPendulum-v4"])
def test_an_action_that_is_nan_is_refused_before_it_is_taken(
    env_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the sentence that a single step gets; InvertedPendulum's rewards would hide it."""
    monkeypatch.chdir(tmp_path)
    venv, _ = begun(env_id, 3, threads=2)
    other, first = begun(env_id, 3)
    layers, noise = layers_for(venv), noise_for(venv, 6)
    noise[4, 1, 0], noise[5, 0, 0], noise[2, 2, 0] = np.nan, np.nan, np.inf  # infinity has a bound
    sentences = []
    for play in (lambda: by_one_call(venv, layers, noise), lambda: by_steps(other, first, layers, noise)):
        with pytest.raises(Refused, match=r"^the action of environment 1 is not finite: \[nan") as refused:
            play()
        sentences.append(str(refused.value))
    assert sentences[0] == sentences[1]
    assert np.array_equal(venv.get_state()["physics"][1], other.get_state()["physics"][1])
    assert list(tmp_path.iterdir()) == [], "MuJoCo has seen no NaN"
    venv.close()

"""Running normalisation: exact statistics, freezing, state."""

import pickle
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rollout_paths import by_one_call, layers_for, noise_for
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv
from toy_envs import OBSERVATIONS, World, many

from geonpg.envs import Moments, MujocoVecEnv, Normalize, frozen, make_vec
from geonpg.errors import Refused
from geonpg.finite import BrokenEnvironment

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def driven(steps: int = 200) -> tuple[Normalize, list[np.ndarray], list[np.ndarray]]:
    """A normalised Hopper, and the raw observations and rewards of an identical one."""
    normalized, raw = Normalize(MujocoVecEnv("Hopper-v4", 3)), MujocoVecEnv("Hopper-v4", 3)
    normalized.seed(0)
    raw.seed(0)
    normalized.reset()
    observations, rewards = [raw.reset()], []
    for actions in np.random.default_rng(0).uniform(-1, 1, size=(steps, 3, 3)).astype(np.float32):
        normalized.step(actions)
        o, r, _, _ = raw.step(actions)
        observations.append(o)
        rewards.append(r)
    return normalized, observations, rewards


def test_observations_are_normalised_with_the_statistics_of_all_steps() -> None:
    normalized, observations, _ = driven()
    rows = np.concatenate(observations)
    assert normalized.observation_moments.count == len(rows)
    expected = (observations[-1] - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-8)
    assert np.allclose(normalized.normalize_observations(observations[-1]), np.clip(expected, -10, 10), atol=1e-9)


def test_rewards_are_scaled_and_episode_returns_are_not() -> None:
    normalized = Normalize(MujocoVecEnv("Hopper-v4", 3))
    normalized.seed(0)
    normalized.reset()
    raw, episodes = MujocoVecEnv("Hopper-v4", 3), 0
    raw.seed(0)
    raw.reset()
    for actions in np.random.default_rng(0).uniform(-1, 1, size=(100, 3, 3)).astype(np.float32):
        _, scaled, _, infos = normalized.step(actions)
        _, rewards, _, raw_infos = raw.step(actions)
        deviation = np.sqrt(normalized.return_moments.variance[0] + 1e-8)
        assert np.allclose(scaled, np.clip(rewards / deviation, -10, 10))
        for mine, theirs in zip(infos, raw_infos, strict=True):
            if "episode" in theirs:
                assert mine["episode"]["r"] == theirs["episode"]["r"]
                expected = normalized.normalize_observations(theirs["terminal_observation"])
                assert np.array_equal(mine["terminal_observation"], expected)
                episodes += 1
    assert episodes > 3


def test_evaluation_uses_the_statistics_and_leaves_them_alone() -> None:
    normalized, _, _ = driven()
    before = normalized.observation_moments.get_state()
    evaluation = frozen(MujocoVecEnv("Hopper-v4", 2), normalized)
    evaluation.seed(1)
    observations = evaluation.reset()
    _, rewards, _, _ = evaluation.step(np.zeros((2, 3), np.float32))
    raw = MujocoVecEnv("Hopper-v4", 2)
    raw.seed(1)
    assert np.array_equal(observations, normalized.normalize_observations(raw.reset()))
    assert np.array_equal(rewards, raw.step(np.zeros((2, 3), np.float32))[1])
    assert evaluation.observation_moments.count == before["count"]
    assert np.array_equal(normalized.observation_moments.mean, before["mean"])


def test_what_is_learnt_later_reaches_an_evaluation_made_before() -> None:
    """As SB3's EvalCallback, which is made before `learn`, wants it."""
    env = Normalize(MujocoVecEnv("Hopper-v4", 3))
    evaluation = frozen(MujocoVecEnv("Hopper-v4", 2), like=env)
    env.reset()
    env.step(np.ones((3, 3), np.float32))
    seen = np.random.default_rng(0).normal(size=(2, 11))
    assert np.array_equal(evaluation.normalize_observations(seen), env.normalize_observations(seen))
    evaluation.reset()
    evaluation.step(np.zeros((2, 3), np.float32))
    assert env.observation_moments.count == 6


def test_statistics_go_to_a_file_and_back(tmp_path: Path) -> None:
    first, _, _ = driven(50)
    first.clip, first.gamma, first.scales_rewards = 5.0, 0.9, False
    first.save(tmp_path / "statistics")
    assert [path.name for path in tmp_path.iterdir()] == ["statistics"]
    second = Normalize.load(tmp_path / "statistics", MujocoVecEnv("Hopper-v4", 2))
    for name in ("observation_moments", "return_moments"):
        assert str(getattr(second, name).get_state()) == str(getattr(first, name).get_state())
    assert (second.clip, second.gamma, second.epsilon) == (5.0, 0.9, 1e-8)
    assert (second.scales_observations, second.scales_rewards, second.training) == (True, False, True)
    seen = np.random.default_rng(0).normal(size=(2, 11))
    assert np.array_equal(second.normalize_observations(seen), first.normalize_observations(seen))
    with pytest.raises(Refused, match="has statistics of 11 numbers, not of 17"):
        Normalize.load(tmp_path / "statistics", MujocoVecEnv("Walker2d-v4", 1))


def test_files_that_hold_no_statistics(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "pickle").write_bytes(pickle.dumps({"observations": 1}))
    (tmp_path / "empty").touch()
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.save(tmp_path / "one.npy", np.zeros(3))
    Normalize(MujocoVecEnv("Hopper-v4", 1)).save(tmp_path / "whole")
    (tmp_path / "half").write_bytes((tmp_path / "whole").read_bytes()[:500])
    for name in ("text", "pickle", "empty", "other.npz", "one.npy", "half"):
        with pytest.raises(Refused, match=f"{name} holds no statistics of Normalize"):
            Normalize.load(tmp_path / name, MujocoVecEnv("Hopper-v4", 1))
    with pytest.raises(FileNotFoundError):
        Normalize.load(tmp_path / "nothing", MujocoVecEnv("Hopper-v4", 1))


def test_state_goes_on_bit_for_bit() -> None:
    first, _, _ = driven(50)
    second = Normalize(MujocoVecEnv("Hopper-v4", 3))
    second.reset()
    second.set_state(first.get_state())
    for actions in np.random.default_rng(9).uniform(-1, 1, size=(60, 3, 3)).astype(np.float32):
        a, b = first.step(actions), second.step(actions)
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(a[1], b[1])


def test_any_vector_environment_can_be_normalised() -> None:
    venv = Normalize(make_vec_env("Pendulum-v1", 2), rewards=False)
    venv.reset()
    for _ in range(5):
        observations, _, _, _ = venv.step(np.zeros((2, 1)))
    assert observations.shape == (2, 3)
    assert venv.get_state().keys() == {"observations", "returns", "discounted", "venv"}
    assert venv.get_state()["venv"] is None, "these environments cannot tell their state"


def test_wrong_arguments() -> None:
    with pytest.raises(Refused, match=r"gamma must lie in \[0, 1\], not 2"):
        Normalize(MujocoVecEnv("Hopper-v4", 1), gamma=2)
    for space in (spaces.Discrete(4), spaces.MultiBinary(4), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2, 2))):
        with pytest.raises(Refused, match=r"^Normalize takes .* vectors.*\(normalize_observations=false\)$") as refused:
            Normalize(showing(space))
        assert str(space) in str(refused.value)


def showing(space: spaces.Space[Any]) -> VecEnv:
    return many(lambda: World(space, spaces.Discrete(2)))


def test_C8_the_vectors_of_a_dictionary_are_normalised() -> None:
    """As each would be alone; images and choices stay as they are."""
    parts = {
        "arm": spaces.Box(-3, 3, (2,), np.float64),
        "eye": spaces.Box(0, 255, (3, 36, 36), np.uint8),
        "room": spaces.Discrete(3),
        "touch": spaces.Box(0, 9, (3,), np.uint8),
    }
    venv = Normalize(showing(spaces.Dict(parts)), rewards=False)
    seen = venv.observation_space
    assert isinstance(seen, spaces.Dict)
    assert {key: seen[key] for key in ("arm", "eye", "room")} == {key: parts[key] for key in ("arm", "eye", "room")}
    assert seen["touch"] == spaces.Box(-10, 10, (3,), np.float32)
    alone = {key: Moments(len(venv.venv.observation_space[key].low)) for key in ("arm", "touch")}
    raw: list[Any] = []
    honest = venv.venv.step_wait
    venv.venv.step_wait = lambda: (raw.append(honest()), raw[-1])[1]
    first = venv.reset()
    assert first.keys() == parts.keys()
    for key, moments in alone.items():
        moments.set_state({name: venv.observation_moments.get_state()[name] for name in ("count", "mean", "squares")})
        columns = slice(0, 2) if key == "arm" else slice(2, 5)
        moments.mean, moments.squares = moments.mean[columns], moments.squares[columns]
    for _ in range(12):
        shown, _, dones, infos = venv.step(np.zeros(3, int))
        for key, moments in alone.items():
            moments.update(raw[-1][0][key].astype(np.float64))
            scaled = ((raw[-1][0][key] - moments.mean) / np.sqrt(moments.variance + 1e-8)).clip(-10, 10)
            assert np.array_equal(shown[key], scaled)
        assert np.array_equal(shown["eye"], raw[-1][0]["eye"])
        assert np.array_equal(shown["room"], raw[-1][0]["room"])
        for i in np.flatnonzero(dones):
            assert infos[i]["terminal_observation"]["arm"].shape == (2,)


def test_C8_a_dictionary_without_vectors_is_refused() -> None:
    for part in (spaces.Discrete(3), spaces.Box(-1, 1, (2, 2))):
        with pytest.raises(Refused, match=r"^Normalize takes observations that are vectors"):
            Normalize(showing(spaces.Dict({"a": part})))


def test_whole_numbers_become_fractions_for_the_agents_buffer() -> None:
    venv = Normalize(showing(spaces.Box(0, 255, (4,), np.uint8)))
    assert venv.observation_space == spaces.Box(-10, 10, (4,), np.float32)
    agent = PPO("MlpPolicy", venv, n_steps=8, batch_size=8, n_epochs=1, device="cpu").learn(24)
    kept = agent.rollout_buffer.observations
    assert kept.dtype == np.float32
    assert np.abs(kept - kept.round()).max() > 0.1
    floats = MujocoVecEnv("Hopper-v4", 1)
    assert Normalize(floats).observation_space == floats.observation_space


ANY = [spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.Dict({"a": spaces.Box(-1, 1, (2, 2))})]


@pytest.mark.parametrize("space", ANY, ids=str)
def test_observations_that_are_not_scaled_may_be_anything(space: spaces.Space[Any]) -> None:
    venv, raw = Normalize(showing(space), observations=False), showing(space)
    shown = [(venv.reset(), raw.reset())]
    for _ in range(5):
        (mine, rewards, _, _), (other, *_) = venv.step(np.ones(3, np.int64)), raw.step(np.ones(3, np.int64))
        shown.append((mine, other))
    for mine, other in shown:
        np.testing.assert_equal(mine, other)
    assert not np.allclose(rewards, 1), "rewards are scaled"
    assert venv.return_moments.count == 15
    state = venv.get_state()
    venv.set_state({**state, "observations": Moments(4).get_state()})  # an earlier version kept them anyway
    venv.step(np.ones(3, np.int64))


class Broken(World):
    """Returns `value` from its fifth step on: in rewards, or in the first, middle or last observations of episodes."""

    def __init__(self, where: str, value: float) -> None:
        super().__init__(spaces.Box(-3, 3, (4,), np.float64), spaces.Discrete(2))
        self.where, self.value = where, value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        return self.spoilt(observation, "first"), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        observation = self.spoilt(observation, "last" if terminated or truncated else "middle")
        broken = self.where == "reward" and len(self.received) >= 5
        return observation, self.value if broken else reward, terminated, truncated, info

    def spoilt(self, observation: Any, where: str) -> Any:
        if self.where == where and len(self.received) >= 5:
            observation[1] = self.value
        return observation


HEALTHY_STEPS = {"first": 6, "middle": 4, "last": 6, "reward": 4}


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300])
@pytest.mark.parametrize("where", HEALTHY_STEPS)
@pytest.mark.parametrize("options", [{}, {"rewards": False}, {"observations": False}], ids=str)
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_broken_environment_does_not_reach_the_statistics(where: str, value: float, options: Any) -> None:
    """Around make_vec and nothing else, as a user of the library would have it."""
    worlds = iter([World(OBSERVATIONS["vector"], spaces.Discrete(2)) for _ in range(2)])
    venv = Normalize(make_vec(lambda: next(worlds, None) or Broken(where, value), 3, seed=0), **options)
    venv.reset()
    what = "a reward" if where == "reward" else "an observation"
    sentence = rf"^environment 2 returned {what} of .*, which is (not finite|too large for float32)"
    for _ in range(HEALTHY_STEPS[where]):
        venv.step(np.zeros(3, int))
    before = str(venv.get_state())
    with pytest.raises(BrokenEnvironment, match=sentence):
        venv.step(np.zeros(3, int))
    assert str(venv.get_state()) == before


def test_a_first_observation_that_is_not_finite_does_not_reach_the_statistics() -> None:
    broken = Broken("first", np.nan)
    venv = Normalize(make_vec(lambda: broken))
    venv.reset()
    broken.received += [0] * 5
    before = str(venv.get_state())
    with pytest.raises(BrokenEnvironment, match=r"^environment 0 returned an observation of nan, which is not finite$"):
        venv.reset()
    assert str(venv.get_state()) == before


class Meeting:
    """Two threads that show each other an array, as processes of a group would."""

    def __init__(self) -> None:
        self.barrier, self.said = Barrier(2), dict[int, Any]()

    def shown(self, rank: int, own: Any) -> list[Any]:
        self.said[rank] = own
        self.barrier.wait(30)
        everyone = [self.said[0], self.said[1]]
        self.barrier.wait(30)
        return everyone


def both(env: Normalize) -> tuple[Any, Any]:
    return env.observation_moments.get_state(), env.return_moments.get_state()


def side_by_side(play: Any, halves: list[Normalize], whole: Normalize, meeting: Meeting) -> list[int]:
    """Play with two halves, which share statistics, and with all; returns how often each half has exchanged."""
    asked = [0, 0]

    def gather(rank: int, own: Any) -> Any:
        asked[rank] += 1
        return meeting.shown(rank, own)

    for rank, half in enumerate(halves):
        half.gather = partial(gather, rank)
    threads = [Thread(target=play, args=(half, rank)) for rank, half in enumerate(halves)]
    for thread in threads:
        thread.start()
    play(whole, None)
    for thread in threads:
        thread.join()
    return asked


@pytest.mark.parametrize("one_call", [False, True])
def test_processes_exchange_once_in_a_rollout(one_call: bool) -> None:
    """After their beginning, and then have the statistics of all environments; whoever rolls out in whichever way."""
    whole = Normalize(MujocoVecEnv("Hopper-v4", 4, threads=1))
    halves = [Normalize(MujocoVecEnv("Hopper-v4", 2, threads=1)) for _ in range(2)]
    layers, noise = layers_for(whole), [noise_for(whole, 24, seed=seed) for seed in range(4)]

    def play(env: Normalize, rank: int | None) -> None:
        env.seed(3 + 2 * (rank or 0))
        env.reset()
        for drawn in noise:
            own = drawn if rank is None else np.ascontiguousarray(drawn[:, 2 * rank : 2 * rank + 2])
            if one_call:
                by_one_call(env, layers, own)
            else:
                with env.rollout():
                    for action in own:
                        env.step(action.clip(-1, 1))

    beginning = 1 + len([1, 3, 7, 15]) + 1  # the reset, whenever they would double, and the end of the first rollout
    assert side_by_side(play, halves, whole, Meeting()) == [beginning + 3] * 2
    for half in halves:
        assert str(both(half)) == str(both(halves[0]))
        for name in ("observation_moments", "return_moments"):
            ours, theirs = getattr(half, name), getattr(whole, name)
            assert ours.count == theirs.count
            assert np.allclose(ours.mean, theirs.mean, rtol=1e-9, atol=1e-12)
            assert np.allclose(ours.squares, theirs.squares, rtol=1e-9, atol=1e-12)


def test_processes_that_share_statistics_have_those_of_all_environments() -> None:
    """Two halves against one wrapper around all environments."""
    whole, meeting = Normalize(MujocoVecEnv("Hopper-v4", 4, threads=1)), Meeting()
    halves = [Normalize(MujocoVecEnv("Hopper-v4", 2, threads=1)) for _ in range(2)]
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 4, 3)).astype(np.float32)

    def play(env: Normalize, seed: int, actions: Any) -> None:
        env.seed(seed)
        env.reset()
        for action in actions:
            env.step(action)

    for rank, half in enumerate(halves):
        half.gather = partial(meeting.shown, rank)
    orders = [(half, 3 + 2 * rank, actions[:, 2 * rank : 2 * rank + 2]) for rank, half in enumerate(halves)]
    threads = [Thread(target=play, args=order) for order in orders]
    for thread in threads:
        thread.start()
    play(whole, 3, actions)
    for thread in threads:
        thread.join()
    for half in halves:
        for name in ("observation_moments", "return_moments"):
            ours, theirs = getattr(half, name), getattr(whole, name)
            assert ours.count == theirs.count
            assert np.allclose(ours.mean, theirs.mean, rtol=1e-12, atol=1e-14)
            assert np.allclose(ours.squares, theirs.squares, rtol=1e-12, atol=1e-14)

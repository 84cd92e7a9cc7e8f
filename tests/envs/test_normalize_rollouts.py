"""Normalisation by rollouts: statistics stand still meanwhile, and are merged at the end."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from toy_envs import World, many

from geonpg.envs import Moments, MujocoVecEnv, Normalize

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def both(env: Normalize) -> tuple[Any, Any]:
    return env.observation_moments.get_state(), env.return_moments.get_state()


def raw_hoppers(n: int) -> MujocoVecEnv:
    venv = MujocoVecEnv("Hopper-v4", n, threads=1)
    venv.seed(0)
    return venv


def assert_statistics_of(env: Normalize, rows: Any, sums: Any) -> None:
    """Those of all rows at once."""
    for moments, seen in ((env.observation_moments, rows), (env.return_moments, sums)):
        assert moments.count == len(seen)
        assert np.allclose(moments.mean, seen.mean(0), rtol=1e-12, atol=1e-13)
        assert np.allclose(moments.variance, seen.var(0), rtol=1e-12, atol=1e-13)


class Recorded:
    """A normalised Hopper, and all that its statistics should know: raw rows, and discounted sums."""

    def __init__(self, n: int = 3, **kwargs: Any) -> None:
        self.env = Normalize(MujocoVecEnv("Hopper-v4", n, threads=1), gamma=0.9, **kwargs)
        self._twin, self._sum, self._actions = raw_hoppers(n), np.zeros(n), np.random.default_rng(0)
        self.env.seed(0)
        self.env.reset()
        self.rows, self.sums, self.rewards = [self._twin.reset()], list[Any](), list[Any]()

    def step(self) -> tuple[Any, Any, Any, Any]:
        actions = self._actions.uniform(-1, 1, (self.env.num_envs, 3)).astype(np.float32)
        observations, rewards, dones, _ = self._twin.step(actions)
        self._sum = 0.9 * self._sum + rewards
        self.rows.append(observations)
        self.rewards.append(rewards)
        self.sums.append(self._sum[:, None].copy())
        self._sum[dones] = 0
        return self.env.step(actions)

    def assert_all_known(self) -> None:
        assert_statistics_of(self.env, np.concatenate(self.rows), np.concatenate(self.sums))


def test_statistics_stand_still_during_a_rollout() -> None:
    """What it shows is scaled as it was before; at its end they are those of all rows at once."""
    play = Recorded()
    for _ in range(50):
        play.step()
    env = play.env
    for _ in range(3):
        before, scale = both(env), np.sqrt(env.return_moments.variance[0] + 1e-8)
        mean, deviation = env.observation_moments.mean, np.sqrt(env.observation_moments.variance + 1e-8)
        with env.rollout():
            for _ in range(40):
                shown, rewards, _, _ = play.step()
                assert str(both(env)) == str(before)
                assert np.array_equal(shown, ((play.rows[-1] - mean) / deviation).clip(-10, 10))
                assert np.array_equal(rewards, (play.rewards[-1] / scale).clip(-10, 10))
        assert env.observation_moments.count == before[0]["count"] + 120
        play.assert_all_known()
    play.step()
    play.assert_all_known()


def test_statistics_that_have_just_begun_do_not_wait_for_the_end_of_a_rollout() -> None:
    """They are merged whenever they would double: with the reset's rows after 1, 3, 7, 15 … steps."""
    play, merged = Recorded(), []
    for first in (0, 40):
        with play.env.rollout():
            for step in range(first, first + 40):
                before = play.env.observation_moments.count
                play.step()
                if play.env.observation_moments.count != before:
                    merged.append(step + 1)
                    play.assert_all_known()
        play.assert_all_known()
    assert merged == [1, 3, 7, 15, 31]


def test_the_last_observations_are_shown_as_the_statistics_are_now() -> None:
    play = Recorded()
    for _ in range(50):
        play.step()
    with play.env.rollout():
        for _ in range(20):
            shown, *_ = play.step()
        assert np.array_equal(play.env.now(), shown)
    assert not np.allclose(play.env.now(), shown, atol=1e-6)
    assert np.array_equal(play.env.now(), play.env.normalize_observations(play.rows[-1]))
    first = play.env.reset()
    assert np.array_equal(play.env.now(), first)


def test_statistics_that_do_not_move_do_not_move_in_a_rollout() -> None:
    play = Recorded()
    for _ in range(5):
        play.step()
    play.env.training = False
    before = str(both(play.env))
    with play.env.rollout():
        for _ in range(20):
            play.step()
    assert str(both(play.env)) == before


def test_a_rollout_that_fails_is_forgotten() -> None:
    play = Recorded()
    for _ in range(30):
        play.step()
    before = str(both(play.env))
    with pytest.raises(KeyError), play.env.rollout():  # noqa: PT012
        play.step()
        raise KeyError
    assert str(both(play.env)) == before
    with play.env.rollout():
        pass
    assert str(both(play.env)) == before


def test_ppo_moves_the_statistics_with_every_step() -> None:
    """As before rollouts of ours: what SB3's algorithms see at a step includes that step."""
    env = Normalize(MujocoVecEnv("Hopper-v4", 3, threads=1))
    counts: list[int] = []
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu")
    model.learn(96, callback=lambda names, _: counts.append(env.observation_moments.count) or True)
    assert counts == [3 * (step + 2) for step in range(32)]


def test_statistics_of_observations_in_single_precision_are_as_exact() -> None:
    """Thousands of rows are merged at once."""
    raw = many(lambda: World(spaces.Box(1000, 1001, (4,), np.float32), spaces.Discrete(2)), 4)
    env, seen = Normalize(raw, rewards=False), list[Any]()
    honest = raw.step_wait
    raw.step_wait = lambda: (seen.append(honest()), seen[-1])[1]
    first = env.reset()
    assert first.dtype == np.float64
    env.observation_moments = Moments(4)
    with env.rollout():
        for _ in range(1000):
            env.step(np.zeros(4, int))
    rows = np.concatenate([step[0] for step in seen])
    assert rows.dtype == np.float32
    rows = rows.astype(np.float64)
    assert np.allclose(env.observation_moments.mean, rows.mean(0), rtol=1e-13)
    assert np.allclose(env.observation_moments.variance, rows.var(0), rtol=1e-9)


def test_environments_may_use_their_arrays_again() -> None:
    """What a rollout has not merged yet is a copy."""
    play, again = Recorded(), Recorded()
    room, inner = np.empty((3, 11)), again.env.venv
    honest = inner.step_wait

    def step_wait() -> Any:
        observations, *rest = honest()
        room[:] = observations
        return room, *rest

    inner.step_wait = step_wait
    for each in (play, again):
        with each.env.rollout():
            for _ in range(30):
                each.step()
    assert str(both(again.env)) == str(both(play.env))
    again.assert_all_known()


@pytest.mark.parametrize("observations", [True, False])
def test_a_state_between_rollouts_goes_on_bit_for_bit(observations: bool) -> None:
    """Also when there are no statistics of observations, by whose number the beginning is known."""
    play = Recorded(observations=observations)
    with play.env.rollout():
        for _ in range(20):
            play.step()
    other = Normalize(MujocoVecEnv("Hopper-v4", 3, threads=1), gamma=0.9, observations=observations)
    other.reset()
    other.set_state(play.env.get_state())
    actions = np.random.default_rng(3).uniform(-1, 1, (20, 3, 3)).astype(np.float32)
    with play.env.rollout(), other.rollout():
        for action in actions:
            one, two = play.env.step(action), other.step(action)
            assert all(np.array_equal(a, b) for a, b in zip(one[:3], two[:3], strict=True))
    assert str(play.env.get_state()) == str(other.get_state())

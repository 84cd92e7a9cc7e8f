"""Frames and scaled actions against doing the same by hand, and their state."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from geonpg.envs import Frames, MujocoVecEnv, Normalize, ScaleActions
from geonpg.envs.wrappers import restore, state_of
from geonpg.errors import Refused

Array = NDArray[Any]
N_ENVS = 3


def hopper(seed: int = 0) -> MujocoVecEnv:
    """Falls often, and is cut off where it does not fall in time."""
    venv = MujocoVecEnv("Hopper-v4", N_ENVS, max_episode_steps=25)
    venv.seed(seed)
    return venv


def actions(steps: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, size=(steps, N_ENVS, 3)).astype(np.float32)


class ByHand:
    """The last observations of one environment, in a list."""

    def __init__(self, frames: int, first: Array) -> None:
        self.frames, self.seen = frames, [first]

    def view(self, observations: list[Array]) -> Array:
        """The newest first, zeros where an episode has no past yet."""
        newest = observations[::-1][: self.frames]
        return np.concatenate([*newest, np.zeros((self.frames - len(newest)) * len(newest[0]))])

    def step(self, observation: Array, final: Array | None) -> tuple[Array, Array | None]:
        last = None if final is None else self.view([*self.seen, final])
        self.seen = [*self.seen, observation] if final is None else [observation]
        return self.view(self.seen), last


@pytest.mark.parametrize("frames", [1, 2, 4])
def test_frames_are_the_last_observations_of_the_episode(frames: int) -> None:
    """Through falls and time limits, terminal observations included; nothing else is touched."""
    wrapped, raw = Frames(hopper(), frames), hopper()
    first, raw_first = wrapped.reset(), raw.reset()
    hands = [ByHand(frames, row) for row in raw_first]
    assert np.array_equal(first, [hand.view(hand.seen) for hand in hands])
    kept, ends = [], set()
    for action in actions(80):
        observations, rewards, dones, infos = wrapped.step(action)
        raw_observations, raw_rewards, raw_dones, raw_infos = raw.step(action)
        assert np.array_equal(rewards, raw_rewards)
        assert np.array_equal(dones, raw_dones)
        for i, hand in enumerate(hands):
            view, last = hand.step(raw_observations[i], raw_infos[i].get("terminal_observation"))
            assert np.array_equal(observations[i], view)
            assert infos[i].keys() == raw_infos[i].keys()
            if last is not None:
                assert np.array_equal(infos[i]["terminal_observation"], last)
                ends.add((raw_infos[i]["TimeLimit.truncated"], raw_infos[i]["episode"]["l"] > frames))
        kept.append((observations, observations.copy()))
    assert {(True, True), (False, True)} <= ends, "both kinds of ends"
    assert all(np.array_equal(given, copy) for given, copy in kept), "what was handed out stays as it was"


def test_frames_start_afresh_at_a_reset() -> None:
    wrapped, raw = Frames(hopper(), 3), hopper()
    wrapped.reset()
    raw.reset()
    for action in actions(4):
        wrapped.step(action)
        raw.step(action)
    again = raw.reset()
    assert np.array_equal(wrapped.reset(), np.concatenate([again, np.zeros((N_ENVS, 22))], 1))


def test_the_space_of_frames() -> None:
    space = Frames(make_vec_env("Pendulum-v1", 2), 3).observation_space
    assert isinstance(space, spaces.Box)
    assert space.shape == (9,)
    assert np.array_equal(space.high, [1, 1, 8] * 3)
    assert np.array_equal(space.low, [-1, -1, -8] * 3)


@pytest.mark.filterwarnings("error")
def test_frames_of_single_precision_make_no_warning() -> None:
    Frames(make_vec_env("Pendulum-v1", 2))


class Listener(gymnasium.Env[Any, Any]):
    """Notes the actions that arrive, in a box that is not symmetric."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Box(np.array([-3, 0.5], np.float32), np.array([1, 0.75], np.float32))

    def __init__(self) -> None:
        self.heard: list[Array] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.heard.append(np.array(action))
        return np.ones(1, np.float32), 2.0, len(self.heard) == 3, False, {}


def test_actions_are_scaled_to_the_bounds() -> None:
    venv = ScaleActions(make_vec_env(Listener, 2))
    assert venv.action_space == spaces.Box(-1, 1, (2,), np.float32)
    assert np.array_equal(venv.reset(), np.zeros((2, 1)))
    sent = np.array([[[-1, -1], [1, 1]], [[0, 0], [0.5, -0.5]], [[-0.25, 1], [1, 0]]], np.float32)
    steps = [venv.step(action) for action in sent]
    expected = [[[-3, 0.5], [1, 0.75]], [[-1, 0.625], [0, 0.5625]], [[-1.5, 0.75], [1, 0.625]]]
    assert np.allclose(np.stack(venv.get_attr("heard"), 1), expected, atol=1e-7)
    observations, rewards, dones, infos = steps[-1]
    assert np.array_equal(observations, np.zeros((2, 1)))
    assert list(rewards) == [2, 2]
    assert list(dones) == [True, True]
    assert np.array_equal(infos[0]["terminal_observation"], [1])


def test_scaled_actions_stay_within_the_bounds() -> None:
    bounds = np.random.default_rng(0).uniform(-3, 3, (100, 2)).astype(np.float32)
    space = spaces.Box(bounds.min(1), bounds.max(1))
    venv = make_vec_env(Listener, 1)
    venv.action_space = space
    scaled = ScaleActions(venv)
    for ends in (-np.ones((1, 100), np.float32), np.ones((1, 100), np.float32)):
        scaled.step_async(ends)
        assert space.contains(venv.actions[0])


def test_a_box_from_minus_one_to_one_is_left_alone() -> None:
    wrapped, raw = ScaleActions(hopper()), hopper()
    assert np.array_equal(wrapped.reset(), raw.reset())
    for action in actions(30):
        assert np.array_equal(wrapped.step(action)[0], raw.step(action)[0])


CHAINS = {
    "frames": lambda venv: Frames(venv, 3),
    "scaled": ScaleActions,
    "both": lambda venv: Frames(Normalize(ScaleActions(venv)), 2),
}


@pytest.mark.parametrize("name", CHAINS)
def test_state_goes_on_bit_for_bit(name: str) -> None:
    """Into environments that are elsewhere; what was saved does not change while the first ones go on."""
    first, second = CHAINS[name](hopper()), CHAINS[name](hopper(9))
    first.reset()
    second.reset()
    for action in actions(7):
        first.step(action)
    for action in actions(5, 1):
        second.step(action)
    state, ends = first.get_state(), 0
    played = [first.step(action) for action in actions(60, 2)]
    second.set_state(state)
    for action, (observations, rewards, dones, _) in zip(actions(60, 2), played, strict=True):
        again = second.step(action)
        assert np.array_equal(again[0], observations)
        assert np.array_equal(again[1], rewards)
        assert np.array_equal(again[2], dones)
        ends += int(dones.sum())
    assert ends > 3
    second.set_state(state)  # nor while the second ones do
    assert np.array_equal(second.step(actions(1, 2)[0])[0], played[0][0])


@pytest.mark.parametrize("wrapper", [Frames, ScaleActions])
def test_environments_without_a_state(wrapper: Any) -> None:
    venv = wrapper(make_vec_env("Pendulum-v1", 2))
    first = venv.reset()
    state = venv.get_state()
    assert state["venv"] is None
    venv.set_state(state)
    assert state_of(venv.venv) is None
    restore(venv.venv, None)
    restore(venv.venv, {"physics": 1})
    observations, _, _, _ = venv.step(np.zeros((2, 1), np.float32))
    assert observations.shape == first.shape


def wrong(make: Any, venv: VecEnv, **options: Any) -> str:
    with pytest.raises(Refused, match="not ") as refused:
        make(venv, **options)
    return str(refused.value)


def test_wrong_spaces_and_numbers_are_refused_in_one_sentence() -> None:
    discrete, pendulum = make_vec_env("FrozenLake-v1", 1), make_vec_env("Pendulum-v1", 1)
    assert wrong(Frames, discrete) == "Frames takes observations that are vectors, not Discrete(16)"
    assert wrong(ScaleActions, discrete) == "scale_actions takes actions in a bounded box, not Discrete(4)"
    assert wrong(Frames, pendulum, frames=0) == "frames must be at least 1, not 0"
    pictures, unbounded = make_vec_env(Listener, 1), make_vec_env(Listener, 1)
    pictures.observation_space = spaces.Box(0, 255, (3, 8, 8), np.uint8)
    assert wrong(Frames, pictures).startswith("Frames takes observations that are vectors, not Box(0, 255, (3, 8, 8)")
    unbounded.action_space = spaces.Box(-np.inf, 1.0, (2,))
    assert wrong(ScaleActions, unbounded).startswith("scale_actions takes actions in a bounded box, not Box(-inf, 1.0")

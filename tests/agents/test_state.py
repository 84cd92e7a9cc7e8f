"""A run that is stopped and restored, against one that never stopped."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize
from torch import Tensor

from geonpg.agents import ACKTR
from geonpg.agents.checkpoint import read, write
from geonpg.agents.state import get_random_state, get_state, set_random_state, set_state
from geonpg.agents.stepping import Stepper
from geonpg.envs import Frames, MujocoVecEnv, Normalize, ScaleActions

UPDATES, N_ENVS, N_STEPS = 3, 2, 20  # a Hopper that acts at random falls about once in these


def hopper(seed: int = 0) -> VecEnv:
    venv = MujocoVecEnv("Hopper-v4", N_ENVS)
    venv.seed(seed)
    return venv


def chain(seed: int = 0) -> VecEnv:
    """Every wrapper that a run may ask for."""
    return Frames(Normalize(ScaleActions(hopper(seed))), 3)


CHAINS = {
    "bare": hopper,
    "normalised": lambda seed=0: Normalize(hopper(seed)),
    "frames inside": lambda seed=0: Normalize(Frames(hopper(seed))),
    "all": chain,
}


def make(env: VecEnv, seed: int = 0, **options: Any) -> ACKTR:
    options.setdefault("policy_kwargs", {"net_arch": [8]})
    return ACKTR("MlpPolicy", env, n_steps=N_STEPS, target_kl=0.01, seed=seed, **options)


def train(agent: ACKTR) -> None:
    agent.learn(UPDATES * N_ENVS * N_STEPS, reset_num_timesteps=False)


def equal(a: Any, b: Any) -> bool:
    """The same values in the same types, all the way down."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    return type(a) is type(b) and a == b


def stored(agent: ACKTR, folder: Path) -> dict[str, Any]:
    """The agent's state, by way of a file."""
    write(folder / "state.ckpt", get_state(agent))
    return read(folder / "state.ckpt")


def assert_goes_on(whole: ACKTR, other: ACKTR, folder: Path) -> None:
    """`other`, a stranger that gets the state of `whole` in the middle, ends in the same bits."""
    train(whole)
    middle = stored(whole, folder)
    train(whole)
    end = stored(whole, folder)
    Stepper(other, 1)  # as an agent that has begun
    train(other)
    assert not equal(other.policy.state_dict(), middle["policy"])
    assert set_state(other, middle) is True
    assert equal(stored(other, folder), middle)
    train(other)
    assert equal(stored(other, folder), end)
    assert end["counters"]["num_timesteps"] == 2 * UPDATES * N_ENVS * N_STEPS
    assert not equal(middle["policy"], end["policy"])
    assert end["optimizer"]["state"]["rejected"] == 0


@pytest.mark.parametrize("method", ["ng", "mid", "geo", "geof"])
def test_every_method_goes_on_bit_for_bit(method: str, tmp_path: Path) -> None:
    assert_goes_on(make(chain(), method=method), make(chain(7), 7, method=method), tmp_path)


@pytest.mark.parametrize("name", CHAINS)
def test_every_chain_of_wrappers_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    assert_goes_on(make(CHAINS[name]()), make(CHAINS[name](7), 7), tmp_path)


OPTIONS: dict[str, dict[str, Any]] = {
    "pcg": {"solver": "pcg", "factors_every": 4},  # the middle lies between two looks at the factors
    "gSDE": {"use_sde": True},
    "a critic by Adam": {"policy_kwargs": {"net_arch": [8], "optimizer_class": torch.optim.Adam}},
    "a critic with extras": {"policy_kwargs": {"net_arch": [8], "critic_extras": True}},
    "whole damping": {"factored_damping": False, "trust_region": "solver"},
    "cautious critic": {"critic_target_kl": 0.01, "critic_gradient_averaging": 0.5, "critic_solver": "kfac"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_other_settings_go_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    assert_goes_on(make(chain(), **OPTIONS[name]), make(chain(7), 7, **OPTIONS[name]), tmp_path)


def test_the_same_agent_can_go_back(tmp_path: Path) -> None:
    agent = make(chain())
    train(agent)
    middle = stored(agent, tmp_path)
    ends = []
    for _ in range(2):
        assert set_state(agent, middle)
        train(agent)
        ends.append(stored(agent, tmp_path))
    assert equal(*ends)


def test_an_episode_that_ended_in_the_last_step_is_over_afterwards(tmp_path: Path) -> None:
    agent, other = make(hopper()), make(hopper(7), 7)
    for each in (agent, other):
        Stepper(each, 1)
    agent._last_episode_starts = np.array([True, False])
    other._last_episode_starts = np.array([False, False])
    set_state(other, stored(agent, tmp_path))
    assert equal(other._last_episode_starts, np.array([True, False]))


def test_statistics_of_episodes_are_kept(tmp_path: Path) -> None:
    agent = make(hopper())
    train(agent)
    state = stored(agent, tmp_path)
    episodes = [(e["r"], e["l"]) for e in agent.ep_info_buffer or []]
    assert len(episodes) > 2
    other = make(hopper(7), 7)
    set_state(other, state)
    assert [(e["r"], e["l"]) for e in other.ep_info_buffer or []] == episodes
    assert other.ep_info_buffer is not None
    assert other.ep_info_buffer.maxlen == 100


def test_the_rate_of_success_is_kept(tmp_path: Path) -> None:
    agent, other = make(hopper()), make(hopper(7), 7)
    for each in (agent, other):
        Stepper(each, 1)
    assert agent.ep_success_buffer is not None
    agent.ep_success_buffer.extend([True, np.bool_(False), 1.0])
    state = stored(agent, tmp_path)
    set_state(other, state)
    assert list(other.ep_success_buffer or []) == [1.0, 0.0, 1.0]
    assert other.ep_success_buffer is not None
    assert other.ep_success_buffer.maxlen == 100
    # as an earlier version wrote it
    del state["successes"], state["random"]["cuda"], state["counters"]["episode_steps"]
    set_state(other, state)
    assert not other.ep_success_buffer


def test_a_state_that_was_read_is_not_touched_by_training(tmp_path: Path) -> None:
    agent = make(chain())
    train(agent)
    state = stored(agent, tmp_path)
    set_state(agent, state)
    train(agent)
    assert equal(state, read(tmp_path / "state.ckpt"))


def cart_pole(seed: int = 0, normalized: bool = True) -> VecEnv:
    venv = make_vec_env("CartPole-v1", N_ENVS, seed=seed)
    return Normalize(venv) if normalized else venv


@pytest.mark.parametrize("normalized", [False, True])
def test_environments_that_cannot_tell_their_state_begin_anew(normalized: bool, tmp_path: Path) -> None:
    agent = make(cart_pole(normalized=normalized))
    train(agent)
    state = stored(agent, tmp_path)
    other = make(cart_pole(7, normalized), 7)
    Stepper(other, 1)
    train(other)
    assert set_state(other, state) is False
    assert equal(get_random_state(), state["random"])
    assert equal(other.policy.state_dict(), dict(state["policy"]))
    assert equal(other.optimizer.state_dict(), state["optimizer"])
    assert other.num_timesteps == UPDATES * N_ENVS * N_STEPS
    assert other._last_episode_starts is not None
    assert other._last_episode_starts.all()
    assert other.env is not None
    raw = other.env.unwrapped.get_attr("state")
    expected = np.array(raw, dtype=np.float32)
    assert np.abs(expected).max() <= 0.05, "where CartPole begins"
    if normalized:
        moments = other.env.observation_moments
        assert moments.count > UPDATES * N_ENVS * N_STEPS, "the statistics go on"
        assert np.allclose(moments.mean, state["env"]["observations"]["mean"], atol=0.1)
        expected = other.env.normalize_observations(expected)
    assert np.allclose(other._last_obs, expected, atol=1e-5)
    train(other)
    assert other.num_timesteps == 2 * UPDATES * N_ENVS * N_STEPS
    assert other.optimizer.steps == 2 * UPDATES


def draws() -> list[float]:
    return [float(torch.rand(())), float(torch.randn(())), np.random.rand(), np.random.randn(), random.gauss(0, 1)]


def test_random_generators_are_restored(tmp_path: Path) -> None:
    random.gauss(0, 1)  # python and numpy keep the second of two normal draws
    np.random.randn()
    write(tmp_path / "random.ckpt", {"random": get_random_state()})
    expected = draws()
    assert not set(expected) & set(draws())
    set_random_state(read(tmp_path / "random.ckpt")["random"])
    assert draws() == expected


def test_generators_of_graphics_cards_are_restored_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [torch.arange(3, dtype=torch.uint8), torch.arange(4, dtype=torch.uint8)]
    restored: dict[int, Tensor] = {}
    assert get_random_state()["cuda"] == []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: cards)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, card: restored.update({card: state}))
    state = get_random_state()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # elsewhere there may be fewer
    set_random_state(state)
    assert equal(restored, {0: cards[0]})


def test_a_state_of_other_environments_is_refused_in_one_sentence(tmp_path: Path) -> None:
    agent = make(hopper())
    Stepper(agent, 1)
    more = make(MujocoVecEnv("Hopper-v4", N_ENVS + 1))
    with pytest.raises(ValueError, match=r"this state has shape \(2, .*these environments need \(3,"):
        set_state(more, stored(agent, tmp_path))


FOREIGN = {"VecNormalize": VecNormalize, "VecFrameStack": lambda venv: VecFrameStack(venv, 2)}


@pytest.mark.parametrize("wrapper", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("outer", [lambda venv: venv, Normalize], ids=["bare", "Normalize"])
def test_wrappers_that_cannot_tell_their_state_are_no_exact_restart(outer: Any, wrapper: Any, tmp_path: Path) -> None:
    agent, other = (make(outer(wrapper(hopper(seed))), seed) for seed in (0, 7))
    train(agent)
    state = stored(agent, tmp_path)
    Stepper(other, 1)
    assert set_state(other, state) is False

"""What goes into a rollout of one call, and what is made of what it has recorded."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from rollout_paths import assert_same, by_one_call, by_steps, layers_for, noise_for

from geonpg.envs import MujocoVecEnv, Normalize
from geonpg.envs.physics import LINEAR, RELU, TANH, Recording
from geonpg.envs.rollouts import RolledOut, joined, packed, policy_mean, rolled_out
from geonpg.finite import BrokenEnvironment

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def by_numpy(layers: list[Any], x: Any) -> Any:
    """The layers in double precision."""
    for weight, bias, name in layers:
        x = x @ weight.T.astype(np.float64) + bias
        x = {"": lambda y: y, "tanh": np.tanh, "relu": lambda y: np.maximum(y, 0)}[name](x)
    return x


def test_layers_are_packed_one_after_the_other() -> None:
    first = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([10, 11, 12], np.float32), "tanh"
    second = np.array([[20, 21, 22]], np.float32), np.array([30], np.float32), ""
    third = np.array([[40]], np.float32), np.array([50], np.float32), "relu"
    weights, widths, kinds = packed([first, second, third])
    assert weights.tolist() == [10, 11, 12, 0, 2, 4, 1, 3, 5, 30, 20, 21, 22, 50, 40]
    assert widths.tolist() == [2, 3, 1, 1]
    assert kinds.tolist() == [TANH, LINEAR, RELU]
    assert (weights.dtype, widths.dtype, kinds.dtype) == (np.float32, np.int64, np.int64)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_means_of_any_batch(dtype: Any, order: Any) -> None:
    """Whatever the precision of observations and their order in memory; the weights are those of the moment."""
    layers = layers_for(MujocoVecEnv("Hopper-v4", 1), (16, 9))
    mean = policy_mean(layers)
    x = np.asarray(np.random.default_rng(0).normal(size=(30, 11)), dtype, order)
    assert np.abs(mean(x) - by_numpy(layers, x.astype(np.float64))).max() < 1e-6
    kept = mean(x)
    layers[0][0][:] = 0
    assert np.array_equal(mean(x), kept)


def recorded(steps: int = 4, n: int = 3) -> Recording:
    """Two episodes end in step 1, the second by a time limit, and one in step 3 by both."""
    recording = Recording(steps, n, 2)
    rng = np.random.default_rng(0)
    recording.after[:], recording.rewards[:] = rng.normal(size=(steps, n, 2)), rng.normal(size=(steps, n))
    recording.terminated[:], recording.truncated[:] = 0, 0
    recording.finals[:], recording.final_returns[:], recording.final_lengths[:] = np.nan, np.nan, -1
    for step, env, terminated, truncated in ((1, 0, 1, 0), (1, 2, 0, 1), (3, 1, 1, 1)):
        recording.terminated[step, env], recording.truncated[step, env] = terminated, truncated
        recording.finals[step, env] = rng.normal(size=2)
        recording.final_returns[step, env], recording.final_lengths[step, env] = 10 * step + env, step
    return recording


def test_episodes_are_listed_in_order_of_time() -> None:
    recording = recorded()
    rolled = rolled_out(recording)
    assert list(zip(rolled.steps, rolled.envs, strict=True)) == [(1, 0), (1, 2), (3, 1)]
    assert rolled.returns.tolist() == [10, 12, 31]
    assert rolled.lengths.tolist() == [1, 1, 3]
    assert rolled.timeouts.tolist() == [False, True, False], "an episode that has ended by itself is not cut off"
    assert np.array_equal(rolled.finals, recording.finals[[1, 1, 3], [0, 2, 1]])
    assert rolled.dones.dtype == np.bool_
    assert np.argwhere(rolled.dones).tolist() == [[1, 0], [1, 2], [3, 1]]


def test_parts_of_a_rollout_are_put_together() -> None:
    one, other = rolled_out(recorded()), rolled_out(recorded())
    whole = joined([one, other])
    for field in fields(RolledOut):
        parts = getattr(one, field.name), getattr(other, field.name)
        assert np.array_equal(getattr(whole, field.name), np.concatenate(parts))
    assert joined([one]) is one


Break = Callable[[Recording, float], None]


def in_reward(recording: Recording, value: float) -> None:
    recording.rewards[2, 1] = value


def in_observation(recording: Recording, value: float) -> None:
    recording.after[2, 1, 0] = value


def in_last_observation(recording: Recording, value: float) -> None:
    recording.finals[3, 1, 0] = value


def in_first_observation(recording: Recording, value: float) -> None:
    recording.after[3, 1, 1] = value


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e300])
@pytest.mark.parametrize("spoil", [in_reward, in_observation, in_last_observation, in_first_observation])
@pytest.mark.parametrize("n", [3, 3000], ids=["few", "many"])
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_is_not_finite_is_named(spoil: Break, value: float, n: int) -> None:
    """Also among more numbers than are tested by one product. What stands beside no end of an episode says nothing."""
    recording = recorded(5, n)
    rolled_out(recording)
    spoil(recording, value)
    recording.rewards[4, 0] = np.nan  # comes later
    what = "a reward" if spoil is in_reward else "an observation"
    sentence = rf"^environment 1 returned {what} of .*, which is (not finite|too large for float32)"
    with pytest.raises(BrokenEnvironment, match=sentence):
        rolled_out(recording)


def broken(what: str) -> MujocoVecEnv:
    """Hoppers after some steps whose rewards, or next first states, are NaN."""
    venv = MujocoVecEnv("Hopper-v4", 3, threads=2, max_episode_steps=9)
    venv.seed(0)
    venv.reset()
    for _ in range(6):
        venv.step(np.zeros((3, 3), np.float32))
    venv.set_attr("_ctrl_cost_weight" if what == "reward" else "_reset_noise_scale", np.nan)
    return venv


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_a_broken_environment_is_named(what: str) -> None:
    venv = broken(what)
    with pytest.raises(BrokenEnvironment, match=f"^environment 0 returned an? {what} of nan, which is not finite$"):
        by_one_call(venv, layers_for(venv), noise_for(venv, 5))
    venv.close()


def statistics(env: Normalize) -> str:
    return str([env.get_state()[name] for name in ("observations", "returns")])


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_a_broken_environment_leaves_no_trace_in_statistics(what: str) -> None:
    """By the same sentence on both paths."""
    sentences = []
    for one_call in (True, False):
        venv = broken(what)
        env = Normalize(venv)
        env.observation_moments.update(np.random.default_rng(0).normal(size=(100, 11)))
        before, now = (
            str([env.get_state()[name] for name in ("observations", "returns")]),
            venv.simulations.observations,
        )
        layers, noise = layers_for(env), noise_for(env, 5)
        with pytest.raises(BrokenEnvironment, match=f"^environment 0 returned an? {what} of nan") as error:
            by_one_call(env, layers, noise) if one_call else by_steps(
                env, env.normalize_observations(now), layers, noise
            )
        sentences.append(str(error.value))
        assert str([env.get_state()[name] for name in ("observations", "returns")]) == before
        venv.close()
    assert sentences[0] == sentences[1]


WRAPPED = {
    "training": {},
    "rewards alone": {"observations": False},
    "observations alone": {"rewards": False, "clip": 1.0},
    "raw": {"observations": False, "rewards": False},
    "frozen": {},
}


def normalized(env_id: str, name: str, threads: int) -> tuple[Normalize, Any]:
    env = Normalize(MujocoVecEnv(env_id, 4, threads=threads, max_episode_steps=11), gamma=0.9, **WRAPPED[name])
    env.seed(2)
    now = env.reset()
    for _ in range(3):
        now = env.step(np.zeros((4, *env.action_space.shape), np.float32))[0]
    env.training = name != "frozen"
    return env, now


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("env_id", ["Hopper-v4", "Reacher-v4", "Ant-v5"])
def test_normalised_rollouts_are_as_many_steps(env_id: str, name: str) -> None:
    """From the beginning of the statistics on, through three rollouts: what happens, statistics, state."""
    stepping, now = normalized(env_id, name, 1)
    rolling, _ = normalized(env_id, name, 3)
    layers = layers_for(stepping)
    for k in range(3):
        noise = noise_for(stepping, 14, seed=k)
        played = by_steps(stepping, now, layers, noise)
        assert_same(by_one_call(rolling, layers, noise), played)
        assert_same(rolling.get_state(), stepping.get_state())
        assert len(played.ends) >= 4
        now = stepping.now()
        assert_same(rolling.now(), now)
    rolling.close()

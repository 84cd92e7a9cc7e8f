"""The vector environment against gymnasium's own, bit for bit; its state; and SB3's contract."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from native_envs import IDS, actions_for, gym_env
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecNormalize

from geonpg.envs import MujocoVecEnv
from geonpg.errors import Refused

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def assert_identical(env_id: str, steps: int, dtype: type = np.float32, **kwargs: Any) -> int:
    """Drive both with the same seeds and actions; returns how many episodes ended."""
    venv = MujocoVecEnv(env_id, 2, threads=1, **kwargs)  # tests run side by side, and threads change no result
    originals = [gym_env(env_id, **kwargs) for _ in range(2)]
    venv.seed(7)
    first = venv.reset()
    assert np.array_equal(first, [env.reset(seed=7 + i)[0] for i, env in enumerate(originals)])
    assert venv.observation_space == originals[0].observation_space
    assert venv.action_space == originals[0].action_space
    episodes = 0
    for actions in actions_for(venv, steps, dtype):
        step = venv.advance(actions)
        for i, env in enumerate(originals):
            observation, reward, terminated, truncated, _ = env.step(actions[i])
            assert step.rewards[i] == reward
            assert (step.terminated[i], step.truncated[i]) == (terminated, truncated)
            if terminated or truncated:
                final = step.final_observations[list(step.ended).index(i)]
                assert np.array_equal(final, observation)
                observation, _ = env.reset()
                episodes += 1
            assert np.array_equal(step.observations[i], observation)
    venv.close()
    return episodes


@pytest.mark.parametrize("env_id", IDS)
def test_identical_to_gymnasium(env_id: str) -> None:
    """2,000 random steps through many resets: observations, rewards, ends and final observations are equal.

    They are 1,000 steps of two environments; episodes are cut short, so that all tasks begin several.
    """
    assert assert_identical(env_id, 1000, max_episode_steps=min(300, time_limit(env_id))) >= 6


@pytest.mark.parametrize("env_id", IDS)
def test_the_time_limit_is_gymnasiums(env_id: str) -> None:
    """Of episodes that are one step from it, one that does not end otherwise is cut off."""
    venv = MujocoVecEnv(env_id, 2)
    venv.seed(7)
    venv.reset()
    limit = time_limit(env_id)
    venv.set_state({**venv.get_state(), "lengths": np.array([limit - 1, limit - 2])})
    step = venv.advance(np.zeros((2, *venv.action_space.shape), np.float32))
    assert step.truncated.tolist() == [True, False]
    assert step.lengths.tolist() == [limit]


def time_limit(env_id: str) -> int:
    limit = gymnasium.spec(env_id).max_episode_steps
    assert limit is not None
    return limit


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("Ant-v4", {"use_contact_forces": True, "contact_cost_weight": 0.1}),
        ("Ant-v5", {"include_cfrc_ext_in_observation": False, "main_body": "torso", "forward_reward_weight": 2.0}),
        ("Ant-v5", {"exclude_current_positions_from_observation": False, "frame_skip": 3}),
        ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.37}),
        ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_reward": 0.3}),
        ("Walker2d-v4", {"terminate_when_unhealthy": False, "healthy_z_range": (0.9, 1.5)}),
        ("Hopper-v4", {"healthy_state_range": (-2.0, 2.0), "reset_noise_scale": 0.1}),
        ("Swimmer-v5", {"exclude_current_positions_from_observation": False, "forward_reward_weight": 3.0}),
        ("Humanoid-v5", {"include_cinert_in_observation": False, "include_cfrc_ext_in_observation": False}),
        ("HumanoidStandup-v5", {"impact_cost_range": (0.0, 2.0), "include_cvel_in_observation": False}),
        ("Reacher-v5", {"reward_dist_weight": 0.5, "reward_control_weight": 2.0}),
        ("InvertedDoublePendulum-v5", {"healthy_reward": 3.0, "reset_noise_scale": 0.02}),
        ("HalfCheetah-v5", {"xml_file": "walker2d_v5.xml", "max_episode_steps": 50}),
    ],
    ids=str,
)
def test_identical_with_gymnasiums_keywords(env_id: str, kwargs: dict[str, Any]) -> None:
    assert_identical(env_id, 300, **kwargs)


@pytest.mark.parametrize("env_id", ["HalfCheetah-v4", "Humanoid-v4", "Reacher-v4"])
def test_identical_with_actions_in_double_precision(env_id: str) -> None:
    assert_identical(env_id, 200, np.float64)


@pytest.mark.parametrize("env_id", IDS)
def test_a_restored_state_goes_on_bit_for_bit(env_id: str) -> None:
    """Into a fresh vector with other generators, across resets."""
    venv, other = MujocoVecEnv(env_id, 3), MujocoVecEnv(env_id, 3)
    venv.seed(1)
    venv.reset()
    actions = actions_for(venv, 120)
    for row in actions[:60]:
        venv.step(row)
    state = venv.get_state()
    truth = [venv.step(row) for row in actions[60:]]
    other.reset()
    other.set_state(state)
    for row, (observations, rewards, dones, infos) in zip(actions[60:], truth, strict=True):
        again = other.step(row)
        assert np.array_equal(again[0], observations)
        assert np.array_equal(again[1], rewards)
        assert np.array_equal(again[2], dones)
        for mine, theirs in zip(again[3], infos, strict=True):
            assert mine.get("episode", {}).get("r") == theirs.get("episode", {}).get("r")
            assert mine.get("episode", {}).get("l") == theirs.get("episode", {}).get("l")
    venv.close()
    other.close()


def test_checkpoints_are_read_by_the_keys_of_a_state() -> None:
    keys = {"physics", "observations", "mark", "returns", "lengths", "generators"}
    assert set(MujocoVecEnv("Hopper-v4", 2).get_state()) == keys


@pytest.mark.parametrize("env_id", ["Walker2d-v4", "Ant-v5"])
def test_threads_change_no_result(env_id: str) -> None:
    ends = []
    for threads in (1, 2, 5):
        venv = MujocoVecEnv(env_id, 7, threads=threads)
        venv.seed(3)
        venv.reset()
        for row in actions_for(venv, 100):
            observations = venv.step(row)[0]
        ends.append(np.concatenate([observations.ravel(), venv.get_state()["physics"].ravel()]))
    assert np.array_equal(ends[0], ends[1])
    assert np.array_equal(ends[0], ends[2])


def test_episodes_as_sb3_expects_them() -> None:
    venv = MujocoVecEnv("Hopper-v4", 4, max_episode_steps=30)
    venv.seed(0)
    venv.reset()
    returns, ends = np.zeros(4), {True: 0, False: 0}
    for row in actions_for(venv, 200):
        observations, rewards, dones, infos = venv.step(row)
        returns += rewards
        for i in np.flatnonzero(dones):
            info = infos[i]
            assert info["episode"]["r"] == pytest.approx(returns[i], rel=1e-12)
            assert info["TimeLimit.truncated"] == (info["episode"]["l"] == 30)
            assert not np.array_equal(info["terminal_observation"], observations[i])
            ends[info["TimeLimit.truncated"]] += 1
            returns[i] = 0
        assert all(not infos[i] for i in np.flatnonzero(~dones))
    assert min(ends.values()) > 0


def test_returned_arrays_are_the_callers() -> None:
    """A later step does not change what an earlier one returned."""
    venv = MujocoVecEnv("HalfCheetah-v4", 2)
    venv.seed(0)
    observations = venv.reset()
    kept = observations.copy()
    venv.step(np.ones((2, 6), np.float32))
    assert np.array_equal(observations, kept)


def test_the_same_seed_gives_the_same_episodes() -> None:
    venv = MujocoVecEnv("Walker2d-v4", 2)
    venv.seed(5)
    first = venv.reset()
    unseeded = venv.reset()
    venv.seed(5)
    assert np.array_equal(venv.reset(), first)
    assert not np.array_equal(unseeded, first)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_action_that_is_not_finite_is_named(value: float) -> None:
    venv = MujocoVecEnv("HalfCheetah-v4", 4)
    venv.seed(0)
    venv.reset()
    before = venv.get_state()
    actions = np.zeros((4, 6), np.float32)
    actions[2, 1] = value
    with pytest.raises(Refused, match=r"the action of environment 2 is not finite: \[0.0, (nan|inf)"):
        venv.step(actions)
    assert np.array_equal(venv.get_state()["physics"], before["physics"])
    venv.step(np.full((4, 6), 1e15, np.float32))  # finite, and MuJoCo clamps it


def test_wrong_arguments() -> None:
    with pytest.raises(Refused, match="n_envs must be at least 1, not 0"):
        MujocoVecEnv("HalfCheetah-v4", 0)
    with pytest.raises(Refused, match="threads must be positive"):
        MujocoVecEnv("HalfCheetah-v4", 1, threads=-1)
    with pytest.raises(Refused, match="takes no keyword 'gravity': choose one of forward_reward_weight"):
        MujocoVecEnv("HalfCheetah-v4", 1, gravity=3)
    with pytest.raises(Refused, match="has no native implementation"):
        MujocoVecEnv("CartPole-v1", 1)
    venv = MujocoVecEnv("HalfCheetah-v4", 2)
    with pytest.raises(Refused, match=r"actions must have shape \(2, 6\), not \(6,\)"):
        venv.step(np.zeros(6))
    with pytest.raises(Refused, match="this state has shape"):
        venv.set_state(MujocoVecEnv("HalfCheetah-v4", 3).get_state())


def test_attributes_and_methods() -> None:
    venv = MujocoVecEnv("HalfCheetah-v4", 3)
    venv.seed(0)
    observations = venv.reset()
    assert venv.get_attr("_ctrl_cost_weight") == [0.1] * 3
    assert venv.get_attr("render_mode", indices=[1]) == [None]
    before = venv.get_state()["physics"]
    states = venv.env_method("state_vector")
    assert np.array_equal(np.stack(states)[:, 1:], observations)
    assert np.array_equal(venv.get_state()["physics"], before)  # asking changes nothing
    venv.env_method("set_state", np.zeros(9), np.zeros(9), indices=2)
    assert np.array_equal(venv.env_method("state_vector", indices=2)[0], np.zeros(18))
    assert np.array_equal(venv.env_method("state_vector", indices=1)[0], states[1])
    actions = np.ones((3, 6), np.float32)
    state = venv.get_state()
    rewards = venv.step(actions)[1]
    venv.set_state(state)
    venv.set_attr("_ctrl_cost_weight", 0.0)
    assert np.allclose(venv.step(actions)[1] - rewards, 0.6, atol=1e-6)
    with pytest.raises(Refused, match="shared by all environments"):
        venv.set_attr("_ctrl_cost_weight", 1.0, indices=0)
    with pytest.raises(Refused, match="cannot call 'reset'"):
        venv.env_method("reset")
    assert venv.env_is_wrapped(Monitor) == [True] * 3
    assert venv.env_is_wrapped(gymnasium.wrappers.TimeLimit) == [False] * 3


def test_a_constant_that_is_set_counts_wherever_it_is_used() -> None:
    """A task may keep a constant in a form of its own; setting it must reach that too."""
    venv = MujocoVecEnv("Walker2d-v4", 2)
    venv.seed(0)
    venv.reset()
    actions = np.zeros((2, 6), np.float32)
    assert not venv.step(actions)[2].any()
    venv.set_attr("_healthy_z_range", (5.0, 6.0))
    assert venv.step(actions)[2].all()


@pytest.mark.parametrize("env_id", IDS)
def test_E5_a_state_that_is_set_pays_as_gymnasium_pays(env_id: str) -> None:
    """A state far away, the same state again, and one after an end of the episode: the next rewards are equal."""
    venv, original = MujocoVecEnv(env_id, 2), gym_env(env_id)
    inner: Any = original.unwrapped
    venv.seed(6)
    venv.reset()
    original.reset(seed=7)
    rng = np.random.default_rng(0)
    for k, actions in enumerate(actions_for(venv, 24)):
        if k % 4 == 3:
            qpos, qvel = inner.data.qpos.copy(), inner.data.qvel.copy()
            if k % 8 == 3:
                qpos, qvel = inner.init_qpos + 0.05 * rng.uniform(size=qpos.shape), inner.init_qvel + 0.1
                qpos[0] += 0.5
            inner.set_state(qpos, qvel)
            venv.env_method("set_state", qpos, qvel, indices=1)
        step = venv.advance(actions)
        observation, reward, terminated, truncated, _ = original.step(actions[1])
        assert step.rewards[1] == reward
        if terminated or truncated:
            observation, _ = original.reset()
        assert np.array_equal(step.observations[1], observation)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_E17_the_order_of_actions_in_memory_changes_nothing(env_id: str, dtype: type) -> None:
    ours, other = MujocoVecEnv(env_id, 3), MujocoVecEnv(env_id, 3)
    for venv in (ours, other):
        venv.seed(0)
        venv.reset()
    for actions in actions_for(ours, 20, dtype):
        assert np.array_equal(ours.step(actions)[1], other.step(np.asfortranarray(actions))[1])


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_sb3_algorithms_train_on_it(algorithm: type) -> None:
    venv = MujocoVecEnv("InvertedPendulum-v4", 4)
    model = algorithm("MlpPolicy", venv, n_steps=64, seed=0, device="cpu")
    model.learn(1024)
    assert len(model.ep_info_buffer) > 10
    mean, _ = evaluate_policy(model, MujocoVecEnv("InvertedPendulum-v4", 2), n_eval_episodes=4)
    assert 1 <= mean <= 1000


def test_vec_normalize_works_around_it() -> None:
    venv = VecNormalize(MujocoVecEnv("Hopper-v4", 4))
    PPO("MlpPolicy", venv, n_steps=64, seed=0, device="cpu").learn(512)
    assert venv.obs_rms.count > 500


def test_observations_and_rewards_fit_their_spaces() -> None:
    """What stable_baselines3.common.env_checker asks of a single environment, of every one of ours."""
    venv = MujocoVecEnv("Ant-v5", 3)
    observations = venv.reset()
    for row in actions_for(venv, 20):
        assert observations.dtype == venv.observation_space.dtype
        assert all(venv.observation_space.contains(o) for o in observations)
        observations, rewards, dones, infos = venv.step(row)
        assert rewards.shape == dones.shape == (3,)
        assert rewards.dtype == np.float64
        assert dones.dtype == np.bool_
        assert len(infos) == 3

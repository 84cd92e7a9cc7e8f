"""`geonpg.load`: on plain environments its actions are those of the run's own evaluations."""

import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from native_envs import gym_env
from numpy.typing import NDArray
from sb3_contrib import RecurrentPPO
from short_runs import TASKS, Runs
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize
from toy_envs import World

import geonpg
from geonpg.errors import Refused
from geonpg.scripts import cli
from geonpg.scripts.models.policy import MEMORY
from geonpg.scripts.runs.evaluation import evaluation_seed

Zipped = Callable[[BaseAlgorithm], Path]
VIEW = spaces.Dict({"eye": spaces.Box(0, 255, (36, 36, 1), np.uint8), "place": spaces.Box(-3, 3, (4,))})


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on dictionaries of an image and a vector, which is normalised."""
    kwargs = {"observation_space": VIEW, "action_space": spaces.Box(-1, np.float32([1, 3]), (2,))}
    gymnasium.register("View-v0", entry_point=World, kwargs=kwargs, max_episode_steps=9)
    folder = tmp_path_factory.mktemp("seeing") / "run"
    small = ["--n-envs", "2", "--steps", "32", "--set=n_steps=8", "--set=hidden=4", "--set=critic_hidden=4"]
    assert cli.main(["train", "--env", "View-v0", "--seed", "3", *small, "--folder", str(folder)]) == 0
    return folder


def stacked(observations: list[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {key: np.stack([part[key] for part in observations]) for key in observations[0]}
    return np.stack(observations)


def played(policy: Any, env_id: str, seed: int, episodes: int = 20) -> list[float]:
    """The returns of gymnasium's own environments, each stepped by itself, with a batch of actions for all."""
    envs = [gym_env(env_id) for _ in range(episodes)]
    observations = [env.reset(seed=evaluation_seed(seed) + i)[0] for i, env in enumerate(envs)]
    returns, over, state, begins = (
        np.zeros(episodes),
        np.zeros(episodes, dtype=bool),
        None,
        np.ones(episodes, dtype=bool),
    )
    while not over.all():
        actions, state = policy.predict(stacked(observations), state, begins)
        begins = over
        for i in np.flatnonzero(~over):
            observations[i], reward, terminated, truncated, _ = envs[i].step(actions[i])
            returns[i] += float(reward)
            over[i] = terminated or truncated
    return returns.tolist()


def logged(run: Path) -> list[float]:
    """The returns of a run's last evaluation."""
    return [float(number) for number in (run / "evaluations.csv").read_text().splitlines()[-1].split(",")[-1].split()]


@pytest.mark.parametrize("name", TASKS)
def test_plain_environments_return_what_training_logged(name: str, runs: Runs) -> None:
    """Normalised, of scaled actions and three frames, raw, and of choices: to the last bit."""
    policy = geonpg.load(runs(name))
    assert played(policy, TASKS[name][0], 3) == logged(runs(name))


def test_a_dictionary_with_an_image_is_played_as_it_is(seeing: Path) -> None:
    assert played(geonpg.load(seeing), "View-v0", 3) == pytest.approx(logged(seeing), abs=1e-6)  # SB3 rounds them


@pytest.mark.parametrize("name", ["pendulum", "frames", "cartpole"])
def test_a_single_observation_is_a_batch_of_one(name: str, runs: Runs) -> None:
    policy, env = geonpg.load(str(runs(name)), model="best"), gym_env(TASKS[name][0])
    observation, _ = env.reset(seed=5)
    state, states, start = None, None, True
    for _ in range(5):
        action, state = policy.predict(observation, state, start)
        actions, states = policy.predict(observation[None], states, [start])
        assert env.action_space.contains(action)
        assert np.array_equal(actions, np.asarray(action)[None])
        assert policy.remembers or state is None
        (observation, *_), start = env.step(action), False
    listed, _ = policy.predict(observation.tolist(), state)
    assert np.array_equal(listed, policy.predict(observation, state)[0])


def test_a_dictionary_may_be_single(seeing: Path) -> None:
    policy, space = geonpg.load(seeing), gym_env("View-v0").observation_space
    observation = space.sample()
    action, state = policy.predict(observation)
    assert state is None
    assert action.shape == (2,)
    assert np.allclose(action, policy.predict(stacked([observation] * 3))[0][1], atol=1e-6)
    for wrong, said in (
        ({"eye": observation["eye"]}, r"an observation is a dictionary of \['eye', 'place'\], not \['eye'\]"),
        (observation["place"], r"an observation is a dictionary of \['eye', 'place'\], not ndarray"),
        ({**observation, "place": np.zeros((2, 4))}, "some parts of the observation are of a single one, and some of"),
        ({**observation, "eye": np.zeros((36, 30, 1))}, r"an observation has the shape \(1, 36, 36\) or \(36, 36, 1\)"),
    ):
        with pytest.raises(Refused, match=said):
            policy.predict(wrong)


def test_drawn_actions_vary(runs: Runs) -> None:
    policy = geonpg.load(runs("pendulum"))
    observations = np.zeros((50, 4))
    assert np.ptp(policy.predict(observations)[0]) < 1e-6
    assert len(np.unique(policy.predict(observations, deterministic=False)[0])) > 40


def test_observations_of_a_wrong_shape_are_refused(runs: Runs) -> None:
    policy = geonpg.load(runs("pendulum"))
    for wrong in (np.zeros(1), np.zeros((2, 1)), np.zeros((1, 2, 4)), 3.0):
        with pytest.raises(Refused, match=r"^an observation has the shape \(4,\), and many of them \[n, ...\], not "):
            policy.predict(wrong)
    with pytest.raises(Refused, match=r"^`env.reset\(\)` returns a pair, an observation and its info"):
        policy.predict(gym_env("InvertedPendulum-v4").reset())


def test_what_remembers_cannot_be_used_as_if_it_did_not(runs: Runs) -> None:
    policy, observation = geonpg.load(runs("frames")), np.zeros(4)
    for start in (None, False):
        with pytest.raises(Refused) as refused:
            policy.predict(observation, episode_start=start)
        assert str(refused.value) == MEMORY
    _, state = policy.predict(observation, episode_start=True)
    with pytest.raises(Refused, match=r"the state has the shape \(1, 3, 4\), not \(2, 3, 4\): is it of other episodes"):
        policy.predict(np.zeros((2, 4)), state)
    with pytest.raises(Refused, match=r"episode_start has the shape \(3,\) for 2 observations"):
        policy.predict(np.zeros((2, 4)), episode_start=[True] * 3)


def test_histories_begin_anew_with_each_episode(runs: Runs) -> None:
    policy, rng = geonpg.load(runs("frames")), np.random.default_rng(0)
    first, second, third = rng.normal(size=(3, 2, 4))
    _, state = policy.predict(first, episode_start=True)
    _, state = policy.predict(second, state)
    mixed, _ = policy.predict(third, state, [True, False])
    begun, _ = policy.predict(third, episode_start=[True, True])
    went_on, _ = policy.predict(third, state)
    assert np.array_equal(mixed, [begun[0], went_on[1]])
    assert (begun != went_on).all()


def test_an_sb3_zip_sees_what_vecnormalize_showed_it(tmp_path: Path, zipped: Zipped) -> None:
    """The environment need not be named: its spaces are in the zip."""
    env = VecNormalize(geonpg.make_vec("Pendulum-v1", 2, seed=0), clip_obs=1.5)
    agent = PPO("MlpPolicy", env, n_steps=32, batch_size=64, policy_kwargs={"net_arch": [8]}, seed=1, device="cpu")
    agent.learn(64)
    env.save(str(tmp_path / "statistics.pkl"))
    path, rng = zipped(agent), np.random.default_rng(0)
    raw = rng.normal(size=(30, 3)).astype(np.float32)
    for named in (None, "Pendulum-v1"):
        policy = geonpg.load(path, env=named, normalization=str(tmp_path / "statistics.pkl"))
        assert np.array_equal(policy.predict(raw)[0], agent.predict(env.normalize_obs(raw), deterministic=True)[0])
    plain = geonpg.load(path)
    assert np.array_equal(plain.predict(raw[0])[0], agent.predict(raw[0], deterministic=True)[0])
    with pytest.raises(Refused, match=r"agent.zip does not say its environment: load it with env=ID"):
        plain.make_env(1, 0)


def test_sb3s_own_evaluation_takes_it(runs: Runs) -> None:
    """On plain vector environments, without their Normalize, also if it sees several frames."""
    for name in ("pendulum", "frames"):
        policy = geonpg.load(runs(name))
        found, _ = evaluate_policy(policy, policy.make_env(5, 3), 5, return_episode_rewards=True)
        assert sorted(found) == sorted(logged(runs(name))[:5])


def test_a_recurrent_zip_plays_as_its_algorithm_does(zipped: Zipped) -> None:
    network = {"lstm_hidden_size": 8, "net_arch": [8]}
    agent = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", seed=2, policy_kwargs=network, device="cpu")
    policy, env = geonpg.load(zipped(agent)), gym_env("CartPole-v1")
    observation, _ = env.reset(seed=1)
    with pytest.raises(Refused, match="this policy remembers earlier steps"):
        policy.predict(observation)
    state: Any = None
    truth: Any = None
    for step in range(10):
        action, state = policy.predict(observation, state, step == 0)
        expected, truth = agent.predict(observation, truth, np.array([step == 0]), deterministic=True)
        assert action == expected
        assert np.array_equal(state, truth)
        observation, *_ = env.step(action)


def test_loading_leaves_the_process_as_it_was(
    runs: Runs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random numbers and threads are the caller's, nothing is logged, and nothing is unpickled."""

    def unpickle(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("something was unpickled")

    folders = [runs("cartpole"), runs("pendulum")]
    before: list[NDArray[Any]] = [torch.get_rng_state().numpy(), np.random.get_state()[1]]
    torch.set_num_threads(2)
    caplog.clear()
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, unpickle)
    with caplog.at_level(logging.DEBUG):
        for folder in folders:
            geonpg.load(folder)
            geonpg.load(folder / "best.ckpt")
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert np.array_equal(torch.get_rng_state().numpy(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert not caplog.records


def test_it_says_what_it_is(runs: Runs, zipped: Zipped) -> None:
    frames = runs("frames")
    assert repr(geonpg.load(frames)) == (
        f"<TrainedPolicy {frames}/final.ckpt: InvertedPendulum-v4, 3072 steps, ACKTRPolicy, observations normalised, "
        "3 frames, actions scaled>"
    )
    path = zipped(PPO("MlpPolicy", "CartPole-v1", device="cpu"))
    assert repr(geonpg.load(path)) == f"<TrainedPolicy {path}: unknown environment, 0 steps, ActorCriticPolicy>"


def test_wrong_models_are_refused(runs: Runs, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"nowhere does not exist: name a run folder, a .ckpt model or an SB3 .zip"):
        geonpg.load("nowhere")
    with pytest.raises(Refused, match="unknown model 'worst': choose one of final, best"):
        geonpg.load(runs("pendulum"), model="worst")
    with pytest.raises(Refused, match=r"normalization is for an SB3 .zip: "):
        geonpg.load(runs("pendulum"), normalization="file.npz")
    with pytest.raises(Refused, match=r"is no run folder: it holds no final.ckpt and no run.json"):
        geonpg.load(tmp_path)

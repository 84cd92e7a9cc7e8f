"""Normalisations of SB3's models: the numbers are those that SB3 gives, and a hostile file does nothing."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from short_runs import evaluated, refusal
from stable_baselines3 import A2C
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from geonpg.agents import ACKTR
from geonpg.envs import Normalize, frozen, make_vec
from geonpg.scripts import cli
from geonpg.scripts.models.normalization import beside, load_normalization
from geonpg.scripts.runs.building import RAW, make_env
from geonpg.scripts.runs.evaluation import evaluation_seed, play

PENDULUM = "InvertedPendulum-v4"
Zipped = Callable[[BaseAlgorithm], Path]


def evaluation(env_id: str = PENDULUM) -> VecEnv:
    """The environments that `geonpg evaluate --episodes 4` plays."""
    return make_env(RAW, env_id, 4, evaluation_seed(0))


def shaken(venv: Any) -> Any:
    """The same environments, with statistics far from mean 0 and variance 1."""
    venv.reset()
    for _ in range(30):
        venv.step(np.array([venv.action_space.sample() for _ in range(venv.num_envs)]))
    return venv


def test_A4_an_npz_of_ours_is_taken(tmp_path: Path, zipped: Zipped, capsys: pytest.CaptureFixture[str]) -> None:
    env = shaken(Normalize(make_vec(PENDULUM, 4, seed=0), clip=1.5, epsilon=0.01))
    agent = ACKTR("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, seed=1, device="cpu")
    env.save(tmp_path / "agent.npz")
    truth, _ = play(agent, frozen(evaluation(), like=env))
    path = zipped(agent)
    given = (path, "--env", PENDULUM, "--episodes", 4)
    result = evaluated(capsys, *given, "--normalization", tmp_path / "agent.npz")
    assert result["returns"] == truth.tolist()
    assert result["returns"] != evaluated(capsys, *given)["returns"]


@pytest.mark.parametrize("env_id", [PENDULUM, "Pendulum-v1"])
def test_A4_a_pickle_of_sb3s_is_taken(
    env_id: str, tmp_path: Path, zipped: Zipped, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "vecnormalize.pkl")
    env = shaken(VecNormalize(make_vec(env_id, 4, seed=0), clip_obs=1.5, epsilon=0.01))
    agent = A2C("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, seed=1, device="cpu")
    env.save(file)
    reference = VecNormalize.load(file, evaluation(env_id))
    reference.training = False
    truth, _ = play(agent, reference)
    result = evaluated(capsys, zipped(agent), "--env", env_id, "--episodes", 4, "--normalization", file)
    assert result["returns"] == truth.tolist()


def test_A4_rewards_alone_leave_observations_raw(tmp_path: Path) -> None:
    env = shaken(VecNormalize(make_vec(PENDULUM, 2), norm_obs=False))
    env.save(str(tmp_path / "rewards.pkl"))
    assert not load_normalization(tmp_path / "rewards.pkl", make_vec(PENDULUM)).scales_observations


def test_A4_a_file_beside_the_model_is_named(
    tmp_path: Path, zipped: Zipped, capsys: pytest.CaptureFixture[str]
) -> None:
    env = Normalize(make_vec(PENDULUM, 2))
    path = zipped(ACKTR("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, device="cpu"))
    np.savez(tmp_path / "evaluations.npz", results=np.zeros(3))  # an EvalCallback's
    given = ["evaluate", str(path), "--env", PENDULUM, "--episodes", "1"]
    assert cli.main(given) == 0
    assert "note" not in capsys.readouterr().err
    env.save(tmp_path / "pendulum.npz")
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "vecnormalize.pkl").touch()  # where rl-zoo3 puts it
    assert beside(path) == [tmp_path / "agent" / "vecnormalize.pkl", tmp_path / "pendulum.npz"]
    assert cli.main(given) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 2
    assert notes[1].endswith(f"pass --normalization {tmp_path / 'pendulum.npz'}")
    assert cli.main([*given, "--normalization", str(tmp_path / "pendulum.npz")]) == 0
    assert "note" not in capsys.readouterr().err


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def test_A4_nothing_in_a_pickle_is_run(tmp_path: Path) -> None:
    folder, file = tmp_path / "made", tmp_path / "vecnormalize.pkl"
    env = shaken(VecNormalize(make_vec(PENDULUM, 2)))
    env.old_reward = Hostile(folder)  # in the midst of what belongs there
    env.save(str(file))
    loaded = load_normalization(file, make_vec(PENDULUM))
    assert np.array_equal(loaded.observation_moments.mean, env.obs_rms.mean)
    assert np.array_equal(loaded.observation_moments.variance, env.obs_rms.var)
    file.write_bytes(pickle.dumps(Hostile(folder)))
    with pytest.raises(ValueError, match="holds no statistics of vectors"):
        load_normalization(file, make_vec(PENDULUM))
    assert not folder.exists()


def test_A4_wrong_files_are_one_sentence(tmp_path: Path, zipped: Zipped, capsys: pytest.CaptureFixture[str]) -> None:
    path, file = zipped(A2C("MlpPolicy", PENDULUM, device="cpu")), tmp_path / "statistics"
    given = (path, "--env", PENDULUM, "--normalization", file)
    kinds = "name an .npz of geonpg's Normalize, or what SB3's VecNormalize saved"
    assert refusal(capsys, *given) == f"{file} does not exist: {kinds}"
    file.write_text("hello")
    assert refusal(capsys, *given).endswith(f": {kinds}")
    VecNormalize(make_vec("Pendulum-v1")).save(str(file))
    assert refusal(capsys, *given) == f"{file} has statistics of 3 numbers, not of 4"
    Normalize(make_vec("Pendulum-v1")).save(file)
    assert refusal(capsys, *given) == f"{file} has statistics of 3 numbers, not of 4"
    own = "normalization is for an SB3 .zip: "
    (tmp_path / "model.ckpt").touch()
    assert refusal(capsys, tmp_path / "model.ckpt", "--normalization", file).startswith(own)

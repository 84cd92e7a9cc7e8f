"""Loading policies: SB3's zips against SB3 itself, and files that are no model."""

import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copy
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from sb3_contrib import RecurrentPPO
from short_runs import Runs, evaluated, forget, refusal, write_module
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy

from geonpg.agents import ACKTR
from geonpg.agents.checkpoint import read, write
from geonpg.scripts.runs.building import RAW, make_env
from geonpg.scripts.runs.evaluation import evaluation_seed, play


@pytest.mark.parametrize("algorithm", [ACKTR, PPO, SAC], ids=lambda a: a.__name__)
def test_an_sb3_zip_plays_as_its_algorithm_does(
    algorithm: Any, zipped: Callable[[BaseAlgorithm], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    agent = algorithm("MlpPolicy", "InvertedPendulum-v4", seed=1, policy_kwargs={"net_arch": [8]}, device="cpu")
    truth, _ = play(agent, make_env(RAW, "InvertedPendulum-v4", 4, evaluation_seed(0)))
    path = zipped(agent)
    result = evaluated(capsys, path, "--env", "InvertedPendulum-v4", "--episodes", 4)
    assert result["returns"] == truth.tolist()


WRONG = {
    "nowhere": "nowhere does not exist: name a run folder, a .ckpt model or an SB3 .zip",
    "empty": "empty is no run folder: it holds no final.ckpt and no run.json",
    "begun": "begun has no final model; there is best",
    "begun --model best --env CartPole-v1": "begun/best.ckpt is of InvertedPendulum-v4: --env must say the same, not C",
    "begun/best.ckpt --model best": "model 'best' is chosen among those of a run folder, and begun/best.ckpt is a file",
    "begun --model worst": "argument --model: invalid choice: 'worst' (choose from ",
    "begun --episodes 0": "argument --episodes: must be from 1 to 10,000, not 0",
    "begun --episodes 1e9": "argument --episodes: must be from 1 to 10,000, not 1e9",
    "begun --seed -1": "argument --seed: must be from 0 to 4,294,967,295, not -1",
    "begun --model best --video film.avi": "--video writes a .mp4, .gif or .webp file, not film.avi",
    "begun --model best --export p.json": "--export writes a .onnx file, not p.json",
    "begun --model best --export no/p.onnx": "no is no folder that can be written to",
    "state.ckpt": "state.ckpt is what a run resumes from, not a model: name the run folder",
    "foreign.ckpt": "foreign.ckpt is not a geonpg checkpoint",
    "damaged.ckpt": "damaged.ckpt is truncated or damaged: its checksum does not fit",
    "other.ckpt": "other.ckpt is no model that this version knows: 'settings'",
    "newer.ckpt": "newer.ckpt is no model that this version knows: n_envs must be an integer from 1 to 16,384, not 0",
    "misfit.ckpt": "misfit.ckpt is no model that this version knows: the model.policy has an unknown entry ",
    "lost.ckpt": "unknown environment 'Lost-v0': choose one of ",
    "agent.zip": "agent.zip does not say its environment: name it by --env",
    "agent.zip --env Lost-v0": "unknown environment 'Lost-v0': choose one of ",
    "agent.zip --env CartPole-v1": "agent.zip is no model of SB3: ",
}


@pytest.fixture(scope="module")
def mess(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of things that are no model."""
    folder, run = tmp_path_factory.mktemp("mess"), runs("pendulum")
    (folder / "empty").mkdir()
    (folder / "begun").mkdir()
    for name in ("best.ckpt", "run.json"):
        copy(run / name, folder / "begun")
    copy(max((run / "checkpoints").glob("*.ckpt")), folder / "state.ckpt")
    (folder / "foreign.ckpt").write_text("hello")
    (folder / "damaged.ckpt").write_bytes((run / "best.ckpt").read_bytes()[:-10])
    model = read(run / "best.ckpt")
    write(folder / "other.ckpt", {"env": "CartPole-v1"})
    write(folder / "newer.ckpt", {**model, "settings": {**model["settings"], "n_envs": 0}})
    write(folder / "misfit.ckpt", {**model, "settings": {**model["settings"], "hidden": (7,)}})
    write(folder / "lost.ckpt", {**model, "env": "Lost-v0"})
    copy(run / "best.ckpt", folder / "agent.zip")  # a zip, but not of SB3
    return folder


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_argument_is_one_sentence(
    arguments: str, mess: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(mess)
    said = refusal(capsys, *arguments.split())
    assert said.startswith(WRONG[arguments])


STRANGE: dict[str, Any] = {
    "steps": "many",
    "policy": None,
    "policy.log_std": np.zeros(1, np.float32),
    "normalization": 3.0,
    "normalization.count": [],
    "normalization.mean": np.zeros(7),
}


@pytest.mark.parametrize("name", STRANGE)
def test_B3_unexpected_content_behind_a_right_checksum_is_one_sentence(
    name: str, mess: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, (key, *rest) = read(mess / "begun/best.ckpt"), name.split(".")
    model[key] = {**model[key], rest[0]: STRANGE[name]} if rest else STRANGE[name]
    write(tmp_path / "model.ckpt", model)
    said = refusal(capsys, tmp_path / "model.ckpt")
    assert said.startswith(f"{tmp_path / 'model.ckpt'} is no model that this version knows: the model.{name} is ")


def test_A4_a_recurrent_policy_remembers(
    zipped: Callable[[BaseAlgorithm], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its memory goes from step to step, and is empty at the beginning of an episode, as in SB3's evaluation."""
    network = {"lstm_hidden_size": 8, "net_arch": [8]}
    agent = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", seed=2, policy_kwargs=network, device="cpu")
    path, env = zipped(agent), make_env(RAW, "CartPole-v1", 5, evaluation_seed(0))
    truth, _ = evaluate_policy(agent, env, 5, return_episode_rewards=True)
    result = evaluated(capsys, path, "--env", "CartPole-v1", "--episodes", 5)
    assert sorted(result["returns"]) == sorted(truth)
    assert min(truth) > 16, "without its memory it falls earlier"


@pytest.mark.parametrize(
    ("lacks", "said"), [("policy.pth", "it holds no policy.pth"), ("data", "it does not say its ")]
)
def test_B7_a_zip_that_lacks_a_part_is_refused(
    lacks: str, said: str, zipped: Callable[[BaseAlgorithm], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = zipped(PPO("MlpPolicy", "CartPole-v1", device="cpu"))
    poor = path.with_name("poor.zip")
    with ZipFile(path) as whole, ZipFile(poor, "w") as part:
        for name in whole.namelist():
            if name != lacks:
                part.writestr(name, whole.read(name))
    assert refusal(capsys, poor, "--env", "CartPole-v1").startswith(f"{poor} is no model of SB3: {said}")


def test_B7_a_zip_that_does_not_say_its_steps_is_refused(
    zipped: Callable[[BaseAlgorithm], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    agent = PPO("MlpPolicy", "CartPole-v1", device="cpu")
    del agent.num_timesteps
    path = zipped(agent)
    said = f"{path} is no model of SB3: it does not say its num_timesteps"
    assert refusal(capsys, path, "--env", "CartPole-v1") == said


def test_A5_a_model_imports_no_module_that_was_not_named(
    mess: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, path = write_module(tmp_path, monkeypatch), tmp_path / "model.ckpt"
    env = f"{module}:Walk-v0"
    write(path, {**read(mess / "begun/best.ckpt"), "env": env})
    asks = f"{path} asks for the module {module!r}, whose import runs code: if you trust it, name it by --env {env}"
    assert refusal(capsys, path) == asks
    assert refusal(capsys, path, "--env", "Walk-v0") == f"{path} is of {env}: --env must say the same, not Walk-v0"
    assert module not in sys.modules
    said = refusal(capsys, path, "--env", env)  # allowed; but the policy is of another task
    assert said.startswith(f"{path} is no model that this version knows: the model.policy ")
    forget(module)


def test_a_zip_of_another_task_is_refused(
    zipped: Callable[[BaseAlgorithm], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = zipped(ACKTR("MlpPolicy", "CartPole-v1", device="cpu"))
    said = refusal(capsys, path, "--env", "Reacher-v4")
    assert said.startswith(f"{path} was not trained on Reacher-v4: Observation spaces do not match: ")

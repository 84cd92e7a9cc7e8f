"""`geonpg evaluate`: numbers against the run's own and SB3's, videos and graphs against the policy itself."""

import csv
import json
import sys
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from shutil import copy
from typing import Any, ClassVar

import gymnasium
import imageio_ffmpeg
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from scipy import stats
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.agents import ACKTR
from geonpg.agents.checkpoint import read, write
from geonpg.scripts import cli, export
from geonpg.scripts.building import EVALUATION_SEED, make_env, play
from geonpg.scripts.evaluate import interval
from geonpg.scripts.models import RAW, load


class Toy(gymnasium.Env[Any, Any]):
    """Three random observations; its kinds differ in what they show and take."""

    kinds: ClassVar[dict[str, tuple[spaces.Space[Any], spaces.Space[Any]]]] = {
        "Choices": (spaces.Box(-1, 1, (5,)), spaces.MultiDiscrete([3, 2, 4])),
        "Switches": (spaces.Box(-1, 1, (5,)), spaces.MultiBinary(4)),
        "Matrix": (spaces.Box(-1, 1, (2, 3)), spaces.Box(-0.125, np.float32([[0.125, 0.5], [0.25, 0.75]]), (2, 2))),
        "Image": (spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces.Discrete(2)),
    }

    def __init__(self, kind: str) -> None:
        self.observation_space, self.action_space = self.kinds[kind]

    def observe(self) -> Any:
        space: Any = self.observation_space
        return self.np_random.uniform(space.low, space.high).astype(space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 3
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.left -= 1
        return self.observe(), float(np.sum(action)), self.left == 0, False, {}


for name in Toy.kinds:
    gymnasium.register(f"Toy{name}-v0", entry_point=Toy, kwargs={"kind": name})

TASKS = {
    "pendulum": ("InvertedPendulum-v4",),
    "frames": ("InvertedPendulum-v4", "frames=3", "scale_actions=true", "activation=relu"),
    "raw": ("Reacher-v4", "normalize_observations=false", "normalize_rewards=false", "activation=elu", "hidden="),
    "cartpole": ("CartPole-v1",),
}
Runs = Callable[[str], Path]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Short runs, each trained once, with seed 3."""
    base = tmp_path_factory.mktemp("runs")

    def run(name: str) -> Path:
        folder, (env, *settings) = base / name, TASKS[name]
        if not folder.exists():
            chosen = [part for setting in (*settings, "eval_every=1000") for part in ("--set", setting)]
            command = ["train", "--env", env, "--steps", "3000", "--seed", "3", "--folder", str(folder), *chosen]
            assert cli.main(command) == 0
        return folder

    return run


@pytest.fixture
def zipped(tmp_path: Path) -> Callable[[BaseAlgorithm], Path]:
    def save(agent: BaseAlgorithm) -> Path:
        agent.save(tmp_path / "agent.zip")
        return tmp_path / "agent.zip"

    return save


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["evaluate", *map(str, arguments), "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one sentence that a wrong command gets."""
    capsys.readouterr()
    try:
        code = cli.main(["evaluate", *map(str, arguments)])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(lines) == 1
    return lines[0].removeprefix("geonpg evaluate: ")


@pytest.mark.parametrize("name", TASKS)
def test_it_gives_the_numbers_that_training_logged(name: str, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader((runs(name) / "evaluations.csv").open()))
    logged = [[float(r) for r in row["returns"].split()] for row in rows]
    final = evaluated(capsys, runs(name), "--seed", 3)
    assert final["returns"] == logged[-1]
    assert (final["mean"], final["std"]) == (float(rows[-1]["mean"]), float(rows[-1]["std"]))
    assert (final["env"], final["steps"]) == (TASKS[name][0], int(rows[-1]["steps"]))
    best = max(range(len(rows)), key=lambda i: float(rows[i]["mean"]))
    count = len(logged[best])
    assert evaluated(capsys, runs(name), "--model", "best", "--seed", 3, "--episodes", count)["returns"] == logged[best]


def test_it_prints_one_line(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    result = evaluated(capsys, runs("pendulum"))
    assert cli.main(["evaluate", str(runs("pendulum"))]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert f"{result['mean']:.1f} ± {result['std']:.1f} over 20 deterministic episodes" in line
    assert "95 % t-interval of the mean {:.1f} to {:.1f}, ".format(*result["interval"]) in line
    assert f"min {result['min']:.1f}, max {result['max']:.1f}, length {result['length']:.1f}" in line
    assert cli.main(["evaluate", str(runs("pendulum") / "best.ckpt"), "--episodes", "1"]) == 0
    assert "interval" not in capsys.readouterr().out


def test_lengths_are_those_of_the_episodes(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    result = evaluated(capsys, runs("pendulum"))  # which pays 1 for every step
    assert result["lengths"] == result["returns"]
    assert result["length"] == result["mean"]


def test_drawn_actions_are_reproducible_and_others(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = [evaluated(capsys, runs("pendulum"), "--stochastic", "--seed", seed)["returns"] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert drawn[0] != evaluated(capsys, runs("pendulum"))["returns"]


def test_the_interval_is_students() -> None:
    returns = np.random.default_rng(0).normal(size=7)
    assert interval(returns) == pytest.approx(tuple(stats.ttest_1samp(returns, 0).confidence_interval(0.95)))
    assert interval(np.full(5, 3.0)) == (3, 3)
    assert interval(np.ones(1)) is None


@pytest.mark.parametrize("algorithm", [ACKTR, PPO, SAC], ids=lambda a: a.__name__)
def test_an_sb3_zip_plays_as_its_algorithm_does(
    algorithm: Any, zipped: Callable[[BaseAlgorithm], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    agent = algorithm("MlpPolicy", "InvertedPendulum-v4", seed=1, policy_kwargs={"net_arch": [8]}, device="cpu")
    truth, _ = play(agent, make_env(RAW, "InvertedPendulum-v4", 4, EVALUATION_SEED))
    path = zipped(agent)
    result = evaluated(capsys, path, "--env", "InvertedPendulum-v4", "--episodes", 4)
    assert result["returns"] == truth.tolist()


def test_images_are_evaluated_but_not_exported(
    zipped: Callable[[BaseAlgorithm], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kwargs = {"features_extractor_kwargs": {"features_dim": 8}}
    path = zipped(ACKTR("CnnPolicy", "ToyImage-v0", n_steps=4, policy_kwargs=kwargs, device="cpu"))
    assert evaluated(capsys, path, "--env", "ToyImage-v0")["length"] == 3
    said = refusal(capsys, path, "--env", "ToyImage-v0", "--export", tmp_path / "image.onnx")
    assert said.startswith("only policies of plain layers on vectors of numbers can be exported, not ACKTRCnnPolicy on")


@pytest.mark.parametrize("name", TASKS)
def test_an_exported_graph_plays_the_bare_task_like_the_run(
    name: str, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, env_id = tmp_path / "policy.onnx", TASKS[name][0]
    result = evaluated(capsys, runs(name), "--export", path, "--episodes", 3)
    assert result["export"]["difference"] <= 1e-5
    assert result["export"]["observations"] > 1000
    player = export.Player(path.read_bytes(), 3 if name == "frames" else 1)
    returns, lengths = play(player, make_env(RAW, env_id, 3, EVALUATION_SEED))
    assert lengths.tolist() == result["lengths"]
    assert returns == pytest.approx(result["returns"], rel=1e-5)


@pytest.mark.parametrize("name", ["ToyChoices-v0", "ToySwitches-v0", "ToyMatrix-v0"])
def test_graphs_of_other_actions(
    name: str, zipped: Callable[[BaseAlgorithm], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = ACKTR("MlpPolicy", name, seed=1, policy_kwargs={"net_arch": [8], "ortho_init": False}, device="cpu")
    path = tmp_path / "policy.onnx"
    evaluated(capsys, zipped(agent), "--env", name, "--export", path)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    space: Any = agent.observation_space
    observations = np.stack([space.sample() for _ in range(100)])
    actions = session.run(None, {"observation": observations})[0]
    truth, _ = agent.predict(observations, deterministic=True)
    assert actions.shape == truth.shape
    assert np.allclose(actions, truth, rtol=0, atol=1e-6)
    assert len(np.unique(actions, axis=0)) > 1


def test_actions_of_a_graph_lie_within_bounds(runs: Runs) -> None:
    for name in ("pendulum", "frames"):
        model = load(runs(name))
        with torch.no_grad():
            model.policy.get_parameter("action_net.weight").mul_(1e4)
        player = export.Player(export.to_onnx(model).SerializeToString(), model.settings.frames)
        actions = player.act(export.trials(player, model, 0))
        space = model.action_space
        assert isinstance(space, spaces.Box)
        assert (actions.min(), actions.max()) == (space.low, space.high)


@pytest.mark.parametrize("name", ["pendulum", "cartpole"])
def test_a_graph_that_differs_is_not_written(
    name: str, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, honest = load(runs(name)), export.to_onnx

    def stale(model: Any) -> Any:
        made = honest(model)
        with torch.no_grad():
            model.policy.get_parameter("action_net.bias")[0] += 0.05
        return made

    monkeypatch.setattr(export, "to_onnx", stale)
    with pytest.raises(ValueError, match="the graph differs from the torch policy by"):
        export.export(model, tmp_path / "policy.onnx", 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["pendulum", "cartpole"])
def test_a_video_shows_the_first_episode(
    name: str, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "cartpole":
        pytest.importorskip("pygame")
    elif find_library("EGL") is None:
        pytest.skip("needs EGL")
    monkeypatch.delenv("DISPLAY", raising=False)
    result = evaluated(capsys, runs(name), "--video", tmp_path / "episode.mp4", "--episodes", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["episode.mp4"]
    video, every = result["video"], {"pendulum": 1, "cartpole": 2}[name]  # 25 and 50 steps a second
    assert (video["return"], video["length"]) == (result["returns"][0], result["lengths"][0])
    facts, *frames = imageio_ffmpeg.read_frames(str(tmp_path / "episode.mp4"))
    assert len(frames) == video["frames"] == len(range(0, video["length"], every))
    assert facts["size"] == {"pendulum": (480, 480), "cartpole": (600, 400)}[name]
    assert facts["fps"] == 25
    assert len(np.unique(np.frombuffer(frames[-1], np.uint8))) > 10
    assert frames[0] != frames[-1]


def test_a_broken_renderer_is_one_sentence_and_no_file(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "crayons")
    said = refusal(capsys, runs("pendulum"), "--video", tmp_path / "episode.mp4")
    assert "MUJOCO_GL, which is crayons, must be one of egl, osmesa and glfw that works here" in said
    monkeypatch.setitem(sys.modules, "pygame", None)
    assert "pygame is not installed, run `pip install" in refusal(
        capsys, runs("cartpole"), "--video", tmp_path / "episode.mp4"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "missing", "install"),
    [("--video", "imageio_ffmpeg", "imageio-ffmpeg"), ("--export", "onnxruntime", "onnxruntime")],
)
def test_a_missing_package_is_named_before_any_work(
    option: str, missing: str, install: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert refusal(capsys, "nowhere", option, "file") == f"{option} needs more packages: pip install {install}"


WRONG = {
    "nowhere": "nowhere does not exist: name a run folder, a .ckpt model or an SB3 .zip",
    "empty": "empty is no run folder: it holds no final.ckpt and no run.json",
    "begun": "begun has no final model; there is best",
    "begun --model best --env CartPole-v1": "--env is for an SB3 .zip: begun knows its environment",
    "begun/best.ckpt --model best": "--model chooses among the models of a run folder, and begun/best.ckpt is a file",
    "begun --model worst": "argument --model: invalid choice: 'worst' (choose from ",
    "begun --episodes 0": "--episodes must be at least 1, not 0",
    "begun --seed -1": "--seed must not be negative, not -1",
    "begun --model best --video film.avi": "--video writes a .mp4 file, not film.avi",
    "begun --model best --export no/p.onnx": "no is no folder that can be written to",
    "state.ckpt": "state.ckpt is what a run resumes from, not a model: name the run folder",
    "foreign.ckpt": "foreign.ckpt is not a geonpg checkpoint",
    "damaged.ckpt": "damaged.ckpt is truncated or damaged: its checksum does not fit",
    "other.ckpt": "other.ckpt is no model that this version knows: 'settings'",
    "newer.ckpt": "newer.ckpt is no model that this version knows: n_envs must be an integer of at least 1, not 0",
    "misfit.ckpt": "the weights in misfit.ckpt do not fit its policy: ",
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


def test_a_zip_of_another_task_is_refused(
    zipped: Callable[[BaseAlgorithm], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = zipped(ACKTR("MlpPolicy", "CartPole-v1", device="cpu"))
    said = refusal(capsys, path, "--env", "Reacher-v4")
    assert said.startswith(f"{path} was not trained on Reacher-v4: Observation spaces do not match: ")


def test_unknown_activations_are_refused(runs: Runs) -> None:
    model = load(runs("pendulum"))
    layers: Any = model.policy.get_submodule("mlp_extractor.policy_net")
    layers[1] = torch.nn.Mish()
    with pytest.raises(ValueError, match="activation Mish cannot be exported: only Tanh, ReLU, ELU can"):
        export.check_exportable(model)

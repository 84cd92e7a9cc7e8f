"""ONNX graphs against the policies that they were made of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces
from short_runs import TASKS, Runs, evaluated, refusal
from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.agents import ACKTR
from geonpg.scripts.models import export
from geonpg.scripts.models.loading import load
from geonpg.scripts.runs.building import RAW, make_env
from geonpg.scripts.runs.evaluation import evaluation_seed, play


@pytest.mark.parametrize("name", TASKS)
def test_an_exported_graph_plays_the_bare_task_like_the_run(
    name: str, runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, env_id = tmp_path / "policy.onnx", TASKS[name][0]
    result = evaluated(capsys, runs(name), "--export", path, "--episodes", 3)
    assert result["export"]["difference"] <= 1e-5
    assert result["export"]["observations"] > 1000
    player = export.Player(path.read_bytes(), 3 if name == "frames" else 1)
    returns, lengths = play(player, make_env(RAW, env_id, 3, evaluation_seed(0)))
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
            model.network.get_parameter("action_net.weight").mul_(1e4)
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
            model.network.get_parameter("action_net.bias")[0] += 0.05
        return made

    monkeypatch.setattr(export, "to_onnx", stale)
    with pytest.raises(ValueError, match="the graph differs from the torch policy by"):
        export.export(model, tmp_path / "policy.onnx", 0)
    assert list(tmp_path.iterdir()) == []


def test_images_are_evaluated_but_not_exported(
    zipped: Callable[[BaseAlgorithm], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kwargs = {"features_extractor_kwargs": {"features_dim": 8}}
    path = zipped(ACKTR("CnnPolicy", "ToyImage-v0", n_steps=4, policy_kwargs=kwargs, device="cpu"))
    assert evaluated(capsys, path, "--env", "ToyImage-v0")["length"] == 3
    said = refusal(capsys, path, "--env", "ToyImage-v0", "--export", tmp_path / "image.onnx")
    assert said.startswith("only policies of plain layers on vectors of numbers can be exported, not ACKTRCnnPolicy on")


def test_unknown_activations_are_refused(runs: Runs) -> None:
    model = load(runs("pendulum"))
    layers: Any = model.network.get_submodule("mlp_extractor.policy_net")
    layers[1] = torch.nn.Mish()
    with pytest.raises(ValueError, match="activation Mish cannot be exported: only Tanh, ReLU, ELU can"):
        export.check_exportable(model)

"""Evaluations that would not end by themselves, and signals in them."""

import logging
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from short_runs import interrupting, results

from geonpg.scripts import cli, train
from geonpg.scripts.runs import evaluation
from geonpg.scripts.runs.building import RAW, make_env
from geonpg.scripts.runs.evaluation import has_time_limit

KEYS = ("n_steps=8", "hidden=8", "critic_hidden=8", "eval_every=640", "eval_episodes=2", "env_threads=1")
SMALL = ["--n-envs", "8", *(f"--set={key}" for key in KEYS)]
TINY = ["--env", "InvertedPendulum-v4", "--steps", "1024", *SMALL]


class Endless(gymnasium.Env[Any, Any]):
    """Pays 0.5 for every step, and never ends."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 0.5, False, False, {}


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> str:
    spec = EnvSpec("Endless-v0", entry_point=Endless)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    monkeypatch.setattr(evaluation, "LONGEST_EPISODE", 40)
    monkeypatch.setattr(evaluation, "_told", set())
    return spec.id


def test_B1_without_a_time_limit_evaluations_end_episodes_and_say_so(
    endless: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with caplog.at_level(logging.WARNING):
        assert train.main(["--env", endless, "--steps", "768", *SMALL, "--folder", str(folder)]) == 0
    told = [message for message in caplog.messages if "time limit" in message]
    limit = "evaluations end its episodes after 40 steps; register it with max_episode_steps for another one"
    assert told == [f"{endless} has no time limit: {limit}"]
    assert (folder / "evaluations.csv").read_text().splitlines()[1] == "640,20.0,0.0,20.0 20.0"
    assert cli.main(["evaluate", str(folder), "--episodes", "3", "--export", str(tmp_path / "policy.onnx")]) == 0
    assert "min 20.0, max 20.0, length 40.0" in capsys.readouterr().out


def test_B1_a_limit_of_their_own_is_theirs(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium.registry, endless, EnvSpec(endless, entry_point=Endless, max_episode_steps=90))
    for env_id, longest in ((endless, 90), ("InvertedPendulum-v4", 1000)):
        env = evaluation.evaluation_env(RAW, env_id, 1, None, 0)
        assert has_time_limit(env)
        assert env.get_attr("spec")[0].max_episode_steps == longest


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert train.main([*TINY, "--folder", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(("number", "steps"), [(1, 640), (2, 1024)], ids=["in between", "the last"])
def test_B1_a_signal_ends_an_evaluation_which_is_then_made_again(
    number: int, steps: int, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        made = interrupting(number, patch)
        assert train.main([*TINY, "--folder", str(folder)]) == 130
    assert len(made) == 3
    assert capsys.readouterr().out == f"stopped at {steps} steps; go on with: geonpg train --resume {folder}\n"
    assert not (folder / "final.ckpt").exists()
    assert train.main(["--resume", str(folder)]) == 0
    assert results(folder) == results(whole)


def test_B1_an_interrupted_evaluation_may_be_interrupted_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for arguments in ([*TINY, "--folder", str(folder)], ["--resume", str(folder)]):
        with pytest.MonkeyPatch.context() as patch:
            interrupting(1, patch)
            assert train.main(arguments) == 130
    assert train.main(["--resume", str(folder)]) == 0
    assert (folder / "evaluations.csv").read_bytes() == (whole / "evaluations.csv").read_bytes()


def test_environments_without_a_limit_are_known(endless: str) -> None:
    assert not has_time_limit(make_env(RAW, endless, 1, 0))

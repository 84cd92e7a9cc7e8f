"""Baselines: SB3's own algorithms, unchanged by what we put around them, in run folders like ours."""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import refused
from short_runs import forget, interrupting, write_module

from geonpg.agents.checkpoint import Checkpoints, read, write
from geonpg.errors import Refused
from geonpg.scripts import train
from geonpg.scripts.common.stopping import Stopped, listening
from geonpg.scripts.runs import baseline as baselines
from geonpg.scripts.runs import baseline_settings as zoo
from geonpg.scripts.runs import keeper
from geonpg.scripts.runs.baseline_plan import BaselinePlan, config_of
from geonpg.scripts.runs.evaluation import evaluate_policy
from geonpg.scripts.runs.folder import CURVE, EVALUATIONS, TIMES
from geonpg.scripts.runs.history import FINAL_EPISODES
from geonpg.scripts.runs.run import Run

pytestmark = pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")  # larger than short rollouts
PENDULUM, BUDGET = "InvertedPendulum-v4", {"steps": 256, "eval_every": 128, "eval_episodes": 2, "env_threads": 1}


def plan(algorithm: str, settings: str = "default", **other: Any) -> BaselinePlan:
    """A short run with rollouts of 64 steps."""
    return BaselinePlan.of_config(
        PENDULUM, 3, {**config_of(algorithm, settings, PENDULUM, BUDGET), "n_steps": 64, **other}
    )


def stopping_after(updates: int) -> Callable[[], bool]:
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) >= updates

    return stop


def never() -> bool:
    return False


def table(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()]


def parameters(run: Run) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in run.agent.policy.state_dict().items()}


@pytest.mark.parametrize("algorithm", zoo.ALGORITHMS)
@pytest.mark.parametrize("settings", zoo.SETTINGS)
def test_a_stopped_run_goes_on_bit_for_bit(algorithm: str, settings: str, tmp_path: Path) -> None:
    whole = Run.begin(plan(algorithm, settings), tmp_path / "whole")
    whole.train(never)
    part = Run.begin(plan(algorithm, settings), tmp_path / "part")
    with pytest.raises(Stopped):
        part.train(stopping_after(1))
    torch.manual_seed(1)  # whatever happens in between
    again = Run.resume(tmp_path / "part")
    assert 0 < again.steps < whole.steps
    again.train(never)
    assert parameters(again) == parameters(whole)
    for name in ("curve.csv", "evaluations.csv"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def stopped_run(folder: Path) -> Path:
    """A run of A2C that has saved twice, and was stopped in the middle."""
    run = Run.begin(plan("a2c"), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper, "CHECKPOINT_SECONDS", 0.0)
        with pytest.raises(Stopped):
            run.train(stopping_after(2))
    return folder


def test_checkpoints_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    """It kept everything with the agent, and the steps in the run's identity."""
    Run.begin(plan("a2c"), tmp_path / "whole").train(never)
    folder = stopped_run(tmp_path / "part")
    for path in Checkpoints(folder / "checkpoints").paths():
        state = read(path)
        (own,) = state.pop("ranks")
        state["agent"] |= own
        state["identity"]["steps"] = state.pop("planned")
        write(path, state)
    Run.resume(folder).train(never)
    for name in ("curve.csv", "evaluations.csv"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    longer = (folder / "config.toml").read_text().replace("\nsteps = 256", "\nsteps = 512")
    (folder / "config.toml").write_text(longer)
    with pytest.raises(Refused, match="it was to make 256 steps, not 512; name one of them by --steps"):
        Run.resume(folder)


@pytest.mark.parametrize("harm", [lambda s: s["evaluations"].append([7, 1.0, 0.0, [1.0]]), lambda s: s.pop("curve")])
def test_B3_a_bad_checkpoint_is_passed_over(
    harm: Callable[[dict[str, Any]], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Run.begin(plan("a2c"), tmp_path / "whole").train(never)
    folder = stopped_run(tmp_path / "part")
    (folder / ".curve.csv.1.tmp").write_text("half")  # of a process that was killed
    newest = Checkpoints(folder / "checkpoints").paths()[-1]
    state = read(newest)
    harm(state)
    write(newest, state)
    with caplog.at_level(logging.WARNING):
        Run.resume(folder).train(never)
    assert [line for line in caplog.messages if line.startswith(f"{newest} is not of this version: ")]
    for name in ("curve.csv", "evaluations.csv"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(folder.glob(".*"))


def test_train_goes_on_with_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also further than it was to go; it leaves no model, so that there is none to be looked at."""
    folder = stopped_run(tmp_path / "run")
    assert train.main(["--resume", str(folder), "--steps", "320"]) == 0
    assert capsys.readouterr().out.endswith(" over 20 deterministic episodes after 320 steps\n")
    assert "\nsteps = 320\n" in (folder / "config.toml").read_text()
    assert not list(folder.glob("*.ckpt")) + list(folder.glob("events.*"))
    assert baselines.main(["--resume", str(folder)]) == 0


def test_A5_a_run_folder_imports_no_module_that_was_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, module = tmp_path / "run", write_module(tmp_path, monkeypatch)
    Run.begin(plan("a2c"), folder)
    facts = folder / "run.json"
    facts.write_text(facts.read_text().replace(PENDULUM, f"{module}:Walk-v0"))
    assert baselines.main(["--resume", str(folder)]) == 2
    assert f"{folder} asks for the module {module!r}, whose import runs code" in capsys.readouterr().err
    assert module not in sys.modules
    assert Run.resume(folder, env_id=f"{module}:Walk-v0").plan.env_id == f"{module}:Walk-v0"
    forget(module)


def test_a_run_leaves_what_ours_leave(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in BUDGET.items()]
    started = ["--algorithm", "a2c", "--env", PENDULUM, "--seed", "3", *arguments]
    assert baselines.main([*started, "--folder", str(folder)]) == 0
    columns = {table.file: table.columns for table in (CURVE, EVALUATIONS, TIMES)}
    for name, expected in columns.items():
        assert table(folder / name)[0] == list(expected)
    evaluations = table(folder / "evaluations.csv")[1:]
    assert [int(row[0]) for row in evaluations] == [130, 260]  # updates are made every 5 steps
    assert [len(row[3].split()) for row in evaluations] == [2, FINAL_EPISODES]
    assert json.loads((folder / "run.json").read_text())["env"] == PENDULUM
    finished = Run.resume(folder)
    assert finished.is_complete
    found, _ = evaluate_policy(finished.agent, finished.plan.settings, PENDULUM, FINAL_EPISODES, None, 3)
    assert found.tolist() == finished.history.evaluations[-1].returns  # always the same for the same policy
    before = (folder / "curve.csv").stat().st_mtime_ns
    assert baselines.main(["--resume", str(folder)]) == 0
    assert (folder / "curve.csv").stat().st_mtime_ns == before


@pytest.mark.parametrize("number", [1, 2], ids=["in between", "the last"])
def test_B1_an_evaluation_that_was_stopped_is_made_again(number: int, tmp_path: Path) -> None:
    whole = Run.begin(plan("ppo"), tmp_path / "whole")
    whole.train(never)
    part = Run.begin(plan("ppo"), tmp_path / "part")
    with pytest.MonkeyPatch.context() as patch, listening() as signals:
        steps = interrupting(number, patch)
        with pytest.raises(Stopped):
            part.train(signals)
        assert len(steps) == 3
    again = Run.resume(tmp_path / "part")
    assert not again.is_complete
    assert len(again.history.evaluations) == number - 1
    again.train(never)
    assert Run.resume(tmp_path / "part").is_complete
    assert parameters(again) == parameters(whole)
    for name in ("curve.csv", "evaluations.csv"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "--env Hopper-v4 --algorithm reinforce --folder x",
            "unknown algorithm 'reinforce': choose one of ppo, a2c, trpo",
        ),
        ("--env Hopper-v4 --algorithm ppo --settings best --folder x", "unknown settings 'best': choose one of "),
        (
            "--env Pusher-v4 --algorithm ppo --settings zoo --folder x",
            "unknown task of rl-zoo3's ppo 'Pusher': choose one ",
        ),
        (
            "--env Hoper-v4 --algorithm ppo --folder x",
            "unknown environment 'Hoper-v4' (did you mean Hopper-v4?): choose one of ",
        ),
        (
            "--env Hopper-v4 --algorithm ppo --steps 0 --folder x",
            "steps must be an integer from 1 to 999,999,999,999, not 0",
        ),
        ("--env Hopper-v4 --algorithm ppo", "name --algorithm, --env and --folder, or a run to go on with by --resume"),
        ("--resume missing", "missing is no run folder: "),
    ],
)
def test_wrong_arguments(
    arguments: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, baselines.main, *arguments.split())
    assert said.startswith(f"geonpg.scripts.runs.baseline: {sentence}")
    assert not list(tmp_path.iterdir())

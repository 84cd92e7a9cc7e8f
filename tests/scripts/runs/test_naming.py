"""Runs with other settings have other names, and a taken folder is explained."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from commands import refused

from geonpg.configs import load
from geonpg.scripts import evaluate, train
from geonpg.scripts.runs.naming import LONGEST, run_name
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.run import Run

ENV = "InvertedPendulum-v4"
SMALL = {"n_envs": 2, "n_steps": 8, "hidden": (4,), "critic_hidden": (4,), "eval_episodes": 1, "eval_every": 1000}


def plan(preset: str = "default", env_id: str = ENV, seed: int = 0, **chosen: Any) -> OurPlan:
    return OurPlan(env_id, seed, load(preset, env_id, chosen), preset)


def test_C3_settings_beside_the_preset_are_part_of_the_name() -> None:
    assert run_name(plan()) == "InvertedPendulum-v4_default_geo_0"
    assert run_name(plan(method="ng", steps=1000, env_threads=1, seed=3)) == "InvertedPendulum-v4_default_ng_3"
    assert run_name(plan(gamma=0.98, hidden=(8, 4))) == "InvertedPendulum-v4_default_geo_gamma=0.98_hidden=8,4_0"
    usual = load("paper", ENV).gamma
    assert run_name(plan("paper", gamma=usual)) == "InvertedPendulum-v4_paper_geo_0"


def test_C3_names_stay_short_and_apart() -> None:
    long, other = (run_name(plan(hidden=(16,) * 40, critic_hidden=(16,) * 40, gamma=gamma)) for gamma in (0.5, 0.6))
    assert len(long) < LONGEST + 60
    assert long != other


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that has begun, in a folder with a space in its name."""
    Run.begin(plan(**SMALL, steps=32), tmp_path / "my run").env.close()
    return tmp_path / "my run"


def command(folder: Path, *more: str, **chosen: Any) -> list[str]:
    keys = (f"--set={key}={','.join(map(str, v)) if isinstance(v, tuple) else v}" for key, v in chosen.items())
    return ["--env", ENV, "--folder", str(folder), *keys, *more]


def refusal(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    return refused(capsys, train.main, *arguments).removeprefix("geonpg train: ")


def test_C3_other_settings_are_not_sent_to_resume(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, command(folder, "--steps=32", **{**SMALL, "n_steps": 4}))
    another = f"{folder} holds another run, which differs in n_steps (8 and 4): choose another folder by --folder\n"
    assert said == another
    assert "seed (0 and 1)" in refusal(capsys, command(folder, "--seed=1", **SMALL))


@pytest.mark.parametrize(("steps", "more"), [(32, ""), (16, ""), (64, " --steps 64")])
def test_C3_the_same_settings_are_sent_to_resume(
    steps: int, more: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With more steps if more were asked for; the command that is named works."""
    said = refusal(capsys, command(folder, f"--steps={steps}", "--set=env_threads=1", **SMALL))
    hint = f"geonpg train --resume '{folder}'{more}"
    assert (
        said == f"{folder} holds this run already: go on with it by `{hint}`, or begin another by --seed or --folder\n"
    )
    assert train.main(shlex.split(hint)[2:]) == 0


def test_C3_variants_train_side_by_side(tmp_path: Path) -> None:
    small = [part for part in command(tmp_path, **SMALL) if part not in ("--folder", str(tmp_path))]
    for variant in ([], ["--set=gamma=0.9"], ["--set=gamma=0.8"]):
        assert train.main([*small, "--runs", str(tmp_path), "--steps=16", *variant]) == 0
    assert len(list(tmp_path.iterdir())) == 3


def test_C2_the_end_names_commands_that_work_with_spaces(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--resume", str(folder)]) == 0
    result, watch, curves = capsys.readouterr().out.splitlines()
    assert result.startswith(f"{folder}: ")
    assert result.endswith(" over 20 deterministic episodes after 32 steps")
    video, board = (shlex.split(line.split(":", 1)[1]) for line in (watch, curves))
    assert video == ["geonpg", "evaluate", str(folder), "--video", str(folder / "final.mp4")]
    assert evaluate.parse(video[2:]).video == folder / "final.mp4"
    assert board == ["tensorboard", "--logdir", str(folder)]

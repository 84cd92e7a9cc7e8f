"""`geonpg evaluate`: its numbers against the run's own, and what it refuses."""

import csv
import sys

import numpy as np
import pytest
from scipy import stats
from short_runs import TASKS, Runs, evaluated, refusal

from geonpg.scripts import cli
from geonpg.scripts.models.evaluating import interval


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


@pytest.mark.parametrize(
    ("option", "missing", "install"),
    [("--video film.mp4", "imageio_ffmpeg", "imageio-ffmpeg"), ("--export p.onnx", "onnxruntime", "onnxruntime")],
)
def test_a_missing_package_is_named_before_any_work(
    option: str, missing: str, install: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert refusal(capsys, "nowhere", *option.split()) == f"{option} needs more packages: pip install {install}"


@pytest.mark.parametrize("option", ["--fps 10", "--width 100", "--seconds 3", "--colours 9", "--curve"])
def test_options_of_a_video_need_one(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys, "nowhere", *option.split()) == f"{option.split()[0]} needs --video"


def test_only_a_gif_has_a_palette(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "nowhere", "--video", "film.webp", "--colours", 9)
    assert said == "--colours needs --video FILE.gif: only a .gif has a palette"

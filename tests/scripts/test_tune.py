"""`geonpg tune`: a search that ends in a preset file which `geonpg train` takes, and goes on after an interruption."""

from pathlib import Path

import pytest
from commands import refused

from geonpg.configs import load
from geonpg.scripts import train, tune
from geonpg.scripts.jobs import tuning
from geonpg.scripts.jobs.tuning import SPACE, settings_of, write_best
from geonpg.scripts.tune import parse

pytest.importorskip("ray")

BAD = 'description = "bad"\nn_envs = 4\nhidden = [8]\ncritic_hidden = [8]\ntarget_kl = 1e-9\n'


class Result:
    """As much of Ray's as is looked at."""

    def __init__(self, score: float, steps: int, **config: float) -> None:
        self.metrics = {"score": score, "steps": steps}
        self.config = {"target_kl": 0.003, "learning_rate": 0.3, "damping": 0.01, "gradient_averaging": 0.9} | config
        self.config |= {"gamma": 0.99, "gae_lambda": 0.95, "log_std_init": -0.7, "n_steps": 64}


def test_a_search_leaves_a_preset_that_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_text(BAD)
    out = tmp_path / "tuned.toml"
    flags = ["--env", "InvertedPendulum-v4", "--preset", str(tmp_path / "bad.toml"), "--trials", "2", "--steps", "1280"]
    flags += ["--out", str(out), "--results", str(tmp_path / "trials")]
    assert tune.main(flags) == 0
    printed = capsys.readouterr().out
    assert f"geonpg train --env InvertedPendulum-v4 --preset {out}" in printed
    settings = load(str(out), "InvertedPendulum-v4")
    assert (settings.hidden, settings.n_envs, settings.steps) == ((8,), 4, 1_000_000)
    assert settings.target_kl >= SPACE["target_kl"][1] > 1e-9
    folder = tmp_path / "run"
    assert (
        train.main(["--env", "InvertedPendulum-v4", "--preset", str(out), "--steps", "512", "--folder", str(folder)])
        == 0
    )
    runs = sorted((tmp_path / "trials").glob("*/run/config.toml"))
    assert len(runs) == 2
    before = {path: path.stat().st_mtime_ns for path in runs}
    assert tune.main(flags) == 0  # nothing is left to do, and nothing is done again
    assert {path: path.stat().st_mtime_ns for path in runs} == before


def test_another_search_in_the_same_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ray would take the first one's trials for this one's."""
    flags = ["--env", "InvertedPendulum-v4", "--results", str(tmp_path), "--out", str(tmp_path / "t.toml")]
    tuning.pin_search(parse(flags))
    tuning.pin_search(parse(flags))
    assert tune.main([*flags, "--preset", "paper", "--trials", "64"]) == 2
    assert "was made with other settings, trials (32 and 64): choose other --results" in capsys.readouterr().err


def test_what_cannot_end_well_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(["--env", "Hopper-v4", "--out", "/nowhere/t.toml"])
    assert stopped.value.code == 2
    assert "in a folder that exists" in capsys.readouterr().err
    flags = ["--env", "Hopper-v4", "--results", str(tmp_path / "new"), "--out", str(tmp_path / "t.toml")]
    assert tune.main([*flags, "--steps", "4"]) == 2
    assert "--steps must be at least 10" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_the_best_is_the_best_of_those_that_ran_to_the_end(tmp_path: Path) -> None:
    arguments = parse(["--env", "Hopper-v4", "--steps", "1000", "--out", str(tmp_path / "t.toml")])
    early, first, second = Result(900.0, 200), Result(500.0, 1000, damping=0.1), Result(600.0, 1000, damping=0.2)
    table = write_best(arguments, [early, first, second])
    assert [row[0] for row in table.rows] == [600.0, 500.0]
    tuned = load(str(tmp_path / "t.toml"), "Hopper-v4")
    assert tuned.damping == 0.2
    assert tuned.steps == load("default", "Hopper-v4").steps
    with pytest.raises(ValueError, match="no trial has come to its first evaluation"):
        write_best(arguments, [])


def test_every_key_is_a_setting_and_every_choice_is_legal() -> None:
    for key, drawn in SPACE.items():
        for value in drawn if isinstance(drawn, list) else drawn[1:]:
            assert getattr(settings_of("default", "Hopper-v4", 100, {key: value}), key) == value


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--env", "Nowhere-v4"], "Nowhere-v4"),
        (["--env", "Hopper-v4", "--preset", "bad"], "unknown preset 'bad'"),
        (["--env", "Hopper-v4", "--trials", "0"], "--trials: must be from 1 to 100,000, not 0"),
        (["--env", "Hopper-v4", "--out", "tuned.json"], "--out must be a .toml file"),
    ],
)
def test_what_is_wrong_is_said_at_once(capsys: pytest.CaptureFixture[str], flags: list[str], words: str) -> None:
    assert words in refused(capsys, tune.main, *flags)

"""The command `geonpg deepnets`: what it leaves behind, stopping and continuing, and what it refuses."""

import csv
import signal
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

from geonpg.scripts import deepnets
from geonpg.scripts.deep.figures import figures_of
from geonpg.scripts.deep.methods import DEEP_METHODS
from geonpg.scripts.deep.runs import DeepRun
from geonpg.scripts.deep.study import known_runs
from geonpg.scripts.deep.tasks import DEEP_TASKS

TINY = ["--cases", "40", "--test-cases", "10"]


def run(out: Path, *arguments: str, task: str = "curves") -> int:
    return deepnets.main(["--task", task, "--out", str(out), *TINY, *arguments])


def rows(path: Path) -> list[dict[str, str]]:
    """Everything but how long it took."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {name: cell for name, cell in row.items() if not name.endswith("seconds")} for row in csv.DictReader(file)
        ]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence that a wrong call is answered with."""
    with pytest.raises(SystemExit) as stopped:
        deepnets.main(list(arguments))
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_help_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        deepnets.main(["--help"])
    words = capsys.readouterr().out.replace(",", " ").split()
    assert {*DEEP_TASKS, *DEEP_METHODS} <= set(words)


def test_a_wrong_name_is_answered_with_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--task", "curve")
    assert (
        said == f"geonpg deepnets: unknown task 'curve' (did you mean curves?): choose one of {', '.join(DEEP_TASKS)}"
    )
    said = refusal(capsys, "--task", "curves", "--method", "geo", "newton")
    assert said == f"geonpg deepnets: unknown method 'newton': choose one of {', '.join(DEEP_METHODS)}"


@pytest.mark.parametrize("task", DEEP_TASKS)
def test_leaves_tables_and_a_figure(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--method", "ng", "geo", "--updates", "2", task=task) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tables.md", "figure.png", "settings.json", "ng.csv", "geo.csv", "ng.state", "geo.state"}
    assert imread(tmp_path / "figure.png")[..., :3].std() > 0.02
    assert [row["update"] for row in rows(tmp_path / "ng.csv")] == ["1", "2"]
    assert all(float(row["train_error"]) >= 0 for row in rows(tmp_path / "geo.csv"))
    assert "CPU s/update" in capsys.readouterr().out


def test_C16_without_a_folder_nothing_goes_into_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert deepnets.main(["--task", "curves", *TINY, "--method", "adam-full", "--updates", "1"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert (tmp_path / "runs/deepnets/curves-small/tables.md").exists()


def test_the_small_size_uses_one_thread_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    run(tmp_path, "--method", "adam-full", "--updates", "1")
    run(tmp_path, "--method", "adam-full", "--updates", "1", "--threads", "2")
    run(tmp_path / "full", "--method", "adam-full", "--updates", "1", "--size", "full")
    assert asked == [1, 2, 7]


def test_the_small_curvature_study_has_a_figure_of_its_own(tmp_path: Path) -> None:
    assert run(tmp_path, "--method", "geodesic", "--updates", "1") == 0
    assert {path.name for path in tmp_path.glob("*.png")} == {"figure.png"}
    assert run(tmp_path, "--method", "ng", "perturb", "--updates", "1") == 0
    assert imread(tmp_path / "small-curvature.png")[..., :3].std() > 0.02
    known = known_runs(tmp_path)
    lines = {name: len(figure.axes[0].lines) for name, figure in figures_of(known, "", "", False).items()}
    assert lines == {"figure.png": 2, "small-curvature.png": 6}  # training and test of ng; of all three


def test_an_interrupt_saves_and_the_same_command_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    advance, arguments = DeepRun.advance, ("--method", "geof", "ng", "--updates", "3")
    run(tmp_path / "straight", *arguments)

    def interrupted(self: DeepRun, experiment: object) -> None:
        advance(self, experiment)
        if len(self.rows) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(DeepRun, "advance", interrupted)
    assert run(tmp_path / "stopped", *arguments) == 130
    assert "the same command continues" in capsys.readouterr().err
    assert len(rows(tmp_path / "stopped" / "geof.csv")) == 2
    assert not (tmp_path / "stopped" / "ng.csv").exists()
    monkeypatch.setattr(DeepRun, "advance", advance)
    assert run(tmp_path / "stopped", *arguments) == 0
    for name in ("geof.csv", "ng.csv"):
        assert rows(tmp_path / "stopped" / name) == rows(tmp_path / "straight" / name)


def test_a_state_of_another_run_or_a_damaged_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "--method", "ng", "--updates", "1")
    capsys.readouterr()
    command = ["--task", "curves", "--out", str(tmp_path), *TINY, "--method", "ng", "--updates", "1"]
    assert "was made with other settings, title (" in refusal(capsys, *command, "--method", "adam", "--seed", "1")
    (tmp_path / "ng.state").write_bytes(b"no state")
    assert "is not a geonpg checkpoint; remove it" in refusal(capsys, *command)


def test_a_table_without_its_state_is_never_begun_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables are committed, states are not: one that is long enough stands, a shorter one is not overwritten."""
    run(tmp_path, "--method", "adam-full", "--updates", "2")
    (tmp_path / "adam-full.state").unlink()
    before = (tmp_path / "adam-full.csv").read_bytes()
    assert run(tmp_path, "--method", "adam-full", "--updates", "1") == 0
    command = ["--task", "curves", "--out", str(tmp_path), *TINY, "--method", "adam-full", "--updates", "3"]
    capsys.readouterr()
    assert "has 2 updates, and adam-full.state, from which to go on, is missing" in refusal(capsys, *command)
    assert (tmp_path / "adam-full.csv").read_bytes() == before


def test_what_is_wrong_with_the_data_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = ("--task", "mnist", "--size", "full", "--out", str(tmp_path / "out"))
    assert "needs --data DIR, a folder that holds MNIST's four IDX files" in refusal(capsys, *full)
    assert "is not a folder" in refusal(capsys, *full, "--data", str(tmp_path / "nowhere"))
    assert "no train-images-idx3-ubyte" in refusal(capsys, *full, "--data", str(tmp_path))
    assert "--cases must be at least 4, not 2" in refusal(capsys, "--task", "curves", "--cases", "2")
    assert "--threads: must be from 1 to 1,024, not 0" in refusal(capsys, "--task", "curves", "--threads", "0")

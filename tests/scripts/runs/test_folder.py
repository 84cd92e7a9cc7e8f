"""The files of a run's folder: their rows, what says that a run has ended, and what is kept of it."""

import json
from pathlib import Path

import pytest
from short_runs import ended_run

from geonpg.errors import Refused
from geonpg.scripts.runs.folder import (
    COMPACT,
    CURVE,
    EVALUATIONS,
    TIMES,
    CurveRow,
    Evaluation,
    Times,
    compact,
    finish,
    has_lost_results,
    is_done,
)

NAN = float("nan")


def test_columns_are_the_fields_of_a_row() -> None:
    """Old results are read by these names."""
    assert CURVE.columns == (
        "steps", "return", "length", "kl", "entropy", "explained_variance", "value_loss", "rejected"
    )  # fmt: skip
    assert EVALUATIONS.columns == ("steps", "mean", "std", "returns")
    assert TIMES.columns == ("steps", "seconds", "rollout", "values", "policy", "critic", "evaluation")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    curve = [CurveRow(64, NAN, NAN, 0.1, 0.2, 0.3, 0.4, 0), CurveRow(128, 1 / 3, 7.0, 0.1, 0.2, 0.3, 0.4, 2)]
    evaluations, times = [Evaluation(128, 1.5, 0.5, [1.0, 2.0])], [Times(64, 1.0, 0.5, NAN, 0.25, NAN, 0.0)]
    CURVE.write(tmp_path, curve)
    EVALUATIONS.write(tmp_path, evaluations)
    TIMES.write(tmp_path, times)
    assert repr(CURVE.read(tmp_path)) == repr([row._replace(rejected=float(row.rejected)) for row in curve])
    assert CURVE.last(tmp_path) == curve[-1]
    assert EVALUATIONS.read(tmp_path) == evaluations
    assert repr(TIMES.read(tmp_path)) == repr(times)
    assert (tmp_path / "evaluations.csv").read_text() == "steps,mean,std,returns\n128,1.5,0.5,1.0 2.0\n"


def test_a_table_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    EVALUATIONS.write(tmp_path, [])
    before = (tmp_path / "evaluations.csv").stat().st_mtime_ns
    EVALUATIONS.write(tmp_path, [])
    assert (tmp_path / "evaluations.csv").stat().st_mtime_ns == before
    EVALUATIONS.write(tmp_path, [Evaluation(1, 1.0, 0.0, [1.0])])
    assert EVALUATIONS.has_rows(tmp_path)


HEADING = "steps,mean,std,returns\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "evaluations.csv has no column steps, mean, std, returns"),
        (b"steps,mean,std\n1,2,3\n", "evaluations.csv has no column returns"),
        (HEADING.encode() + b"1,2\n", "evaluations.csv has a row that is no row of numbers: "),
        (HEADING.encode() + b"1,2,x,3 4\n", "evaluations.csv has a row that is no row of numbers: "),
        (HEADING.encode() + b"1,2,3," + b"4" * 200_000, "evaluations.csv has a row that is no row of numbers: "),
        (b"\xff\xfe", "evaluations.csv is not UTF-8 text"),
    ],
)
def test_a_damaged_table_is_refused(text: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "evaluations.csv").write_bytes(text)
    with pytest.raises(Refused) as refused:
        EVALUATIONS.read(tmp_path)
    assert str(refused.value).startswith(words)
    assert EVALUATIONS.last(tmp_path) is None


def test_a_table_without_rows_has_no_last_one(tmp_path: Path) -> None:
    assert EVALUATIONS.last(tmp_path) is None
    assert not EVALUATIONS.has_rows(tmp_path)
    with pytest.raises(FileNotFoundError):
        EVALUATIONS.read(tmp_path)
    (tmp_path / "evaluations.csv").write_text(HEADING)
    assert EVALUATIONS.last(tmp_path) is None
    assert EVALUATIONS.read(tmp_path) == []


def test_done_is_said_and_only_the_compact_files_stay(tmp_path: Path) -> None:
    folder = ended_run(tmp_path / "3")
    (tmp_path / ".3.99.tmp").mkdir()  # of a process that was killed while it began
    assert not is_done(folder)
    finish(folder)
    assert is_done(folder)
    assert json.loads((folder / "done.json").read_text()) == {"steps": 512, "mean": 7.5}
    compact(folder)
    compact(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(COMPACT)
    assert [path.name for path in tmp_path.iterdir()] == ["3"]
    assert not has_lost_results(folder)
    (folder / "evaluations.csv").unlink()
    assert has_lost_results(folder)


def test_a_run_without_evaluations_has_not_ended(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="has ended without an evaluation"):
        finish(tmp_path)


def test_A1_what_a_run_does_not_make_stays(tmp_path: Path) -> None:
    folder = ended_run(tmp_path / "3")
    mine = ("notes.txt", "model.ckpt", "checkpoints/notes.txt", "plots/curve.png", "final.onnx")
    (folder / "plots").mkdir()
    for name in mine:
        (folder / name).write_text("mine")
    finish(folder)
    compact(folder)
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert left == {*COMPACT, *mine}

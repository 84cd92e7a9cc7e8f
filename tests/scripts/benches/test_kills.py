"""`geonpg bench resume --kills`: real processes, really killed."""

import json
import signal
from pathlib import Path

import pytest

from geonpg.scripts import bench
from geonpg.scripts.benches import kills as bench_kills
from geonpg.scripts.benches.kills import KilledRun, KillFindings, fork_life, half_written, kill_at, problem_of


def test_few_kills_change_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_kills, "ARGUMENTS", (*bench_kills.ARGUMENTS, "--steps", "768"))
    assert bench.main(["resume", "--kills", "3", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert (results["resume/kills"], results["resume/lost"]) == (3, 0)
    assert 0 <= results["resume/amid_writing"] <= 3


def test_lost_runs_are_counted_and_fail_the_command() -> None:
    fine, lost = KilledRun(3, 1, ""), KilledRun(2, 0, "curve.csv differ")
    assert not KillFindings([fine]).failed
    assert "every run ended byte for byte as one left alone" in KillFindings([fine]).table()
    assert KillFindings([fine, lost]).failed
    assert (
        KillFindings([fine, lost])
        .table()
        .startswith("5 kills in 2 runs, 1 of them amid the writing of a file: 1 runs were LOST")
    )


def test_what_goes_wrong_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_kills, "train", lambda arguments: 1 // 0)
    life = fork_life(tmp_path / "run")
    assert problem_of(life, life.wait(), tmp_path, tmp_path) == (
        "it ended with code 1: ['ZeroDivisionError: integer division or modulo by zero']"
    )
    monkeypatch.setattr(bench_kills, "train", lambda arguments: 0)
    for place, text in (("whole", "1"), ("run", "2")):
        (tmp_path / place).mkdir()
        for name in bench_kills.EXACT:
            (tmp_path / place / name).write_text("1" if name == "best.ckpt" else text)
    life = fork_life(tmp_path / "run")
    code = life.wait()
    assert (
        problem_of(life, code, tmp_path / "run", tmp_path / "whole") == "final.ckpt, curve.csv, evaluations.csv differ"
    )
    (tmp_path / "run" / ".curve.csv.1.tmp").touch()
    assert problem_of(life, code, tmp_path / "run", tmp_path / "run") == ".curve.csv.1.tmp is left"
    assert half_written(tmp_path / "run") == [tmp_path / "run" / ".curve.csv.1.tmp"]


def test_a_life_that_writes_nothing_is_killed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_kills, "train", lambda arguments: signal.pause() or 0)
    monkeypatch.setattr(bench_kills, "PATIENCE", 0.1)
    assert kill_at(fork_life(tmp_path / "run"), tmp_path / "run", 0.0, amid=True) == -signal.SIGKILL

"""`geonpg bench resume --kills`: real processes, really killed."""

import json
import signal
from pathlib import Path

import pytest

from geonpg.scripts import bench
from geonpg.scripts.benches import kills as bench_kills
from geonpg.scripts.benches.kills import half_written, killed, live, spoilt


def test_few_kills_change_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_kills, "ARGUMENTS", (*bench_kills.ARGUMENTS, "--steps", "768"))
    assert bench.main(["resume", "--kills", "3", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert (results["resume/kills"], results["resume/lost"]) == (3, 0)
    assert 0 <= results["resume/amid_writing"] <= 3
    assert "every run ended byte for byte as one left alone" in bench_kills.table(results)


def test_what_goes_wrong_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_kills.train, "main", lambda arguments: 1 // 0)
    life = live(tmp_path / "run")
    assert spoilt(life, life.wait(), tmp_path, tmp_path) == (
        "it ended with code 1: ['ZeroDivisionError: integer division or modulo by zero']"
    )
    monkeypatch.setattr(bench_kills.train, "main", lambda arguments: 0)
    for place, text in (("whole", "1"), ("run", "2")):
        (tmp_path / place).mkdir()
        for name in bench_kills.EXACT:
            (tmp_path / place / name).write_text("1" if name == "best.ckpt" else text)
    life = live(tmp_path / "run")
    code = life.wait()
    assert spoilt(life, code, tmp_path / "run", tmp_path / "whole") == "final.ckpt, curve.csv, evaluations.csv differ"
    (tmp_path / "run" / ".curve.csv.1.tmp").touch()
    assert spoilt(life, code, tmp_path / "run", tmp_path / "run") == ".curve.csv.1.tmp is left"
    assert half_written(tmp_path / "run") == [tmp_path / "run" / ".curve.csv.1.tmp"]


def test_a_life_that_writes_nothing_is_killed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_kills.train, "main", lambda arguments: signal.pause() or 0)
    monkeypatch.setattr(bench_kills, "PATIENCE", 0.1)
    assert killed(live(tmp_path / "run"), tmp_path / "run", 0.0, amid=True) == -signal.SIGKILL

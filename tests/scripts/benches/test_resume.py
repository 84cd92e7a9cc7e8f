"""`geonpg bench resume`, with processes that keep a run's folder as `geonpg train` does, but only sleep."""

import json
import sys

import pytest

from geonpg.scripts import bench
from geonpg.scripts.benches import resume as bench_resume
from geonpg.scripts.benches.resume import ResumeFindings

SLEEPER = """
import sys, time
from pathlib import Path
folder = Path(sys.argv[2])  # after --resume or --folder
(folder / "checkpoints").mkdir(parents=True, exist_ok=True)
steps = max((int(path.stem.removeprefix("step_")) for path in (folder / "checkpoints").iterdir()), default=0)
(folder / f"events.out.{time.time_ns()}").touch()
lives = len(list(folder.glob("events.out.*")))
while steps < 3:
    time.sleep(0.2)
    steps += 1
    (folder / "checkpoints" / f"step_{steps:012d}.ckpt").touch()
for name in ("final.ckpt", "curve.csv", "evaluations.csv"):
    (folder / name).write_text(RESULT)
"""


def measure(result: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    monkeypatch.setattr(bench_resume, "COMMAND", (sys.executable, "-c", SLEEPER.replace("RESULT", result)))
    monkeypatch.setattr(bench_resume, "ARGUMENTS", ())
    monkeypatch.setattr(bench_resume, "KILLS", 6)
    monkeypatch.setattr(bench_resume, "LONGEST", 0.3)
    assert bench.main(["resume", "--json"]) == 0
    results: dict[str, float] = json.loads(capsys.readouterr().out)
    return results


def test_it_kills_until_it_has_killed_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every run ends, although most lives are too short to save anything."""
    results = measure("'the same'", monkeypatch, capsys)
    assert results["resume/identical"] == 1
    assert results["resume/kills"] == 6
    assert 0 < results["resume/median_lost_seconds"] <= results["resume/worst_lost_seconds"] < 5


def test_it_tells_when_results_differ(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    results = measure("f'made in {lives} lives'", monkeypatch, capsys)
    assert results["resume/identical"] == 0


def test_the_table_says_whether_results_are_the_same() -> None:
    table = ResumeFindings(runs=2, lost_seconds=[0.5, 2.0, 1.0], identical=True).table()
    assert "3 kills in 2 runs\nall of final.ckpt, " in table
    assert "median 1.0, worst 2.0" in table
    assert "\nNOT all of final.ckpt, " in ResumeFindings(2, [1.0], identical=False).table()


def test_a_run_that_fails_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)failed: .*ZeroDivisionError"):
        measure("1 / 0", monkeypatch, capsys)

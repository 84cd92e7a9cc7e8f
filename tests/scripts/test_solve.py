"""`geonpg solve` on goals that are quickly reached, and on one that is not."""

from pathlib import Path

import pytest

from geonpg.configs import load
from geonpg.scripts import solve
from geonpg.scripts.jobs import solving
from geonpg.scripts.runs.facts import create
from geonpg.scripts.runs.our_plan import OurPlan


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solving, "SEEDS", (0,))
    monkeypatch.setattr(solving, "EVAL_EVERY", 2000)


@pytest.mark.usefixtures("quick")
def test_a_run_is_made_once_and_reported_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "GOALS", (solving.Goal("InvertedPendulum-v4", 3.0, 4000),))
    assert solve.main(["--runs", str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert "InvertedPendulum-v4" in first
    (folder,) = tmp_path.iterdir()
    before = (folder / "final.ckpt").stat().st_mtime_ns
    assert solve.main(["--runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == first
    assert (folder / "final.ckpt").stat().st_mtime_ns == before


@pytest.mark.usefixtures("quick")
def test_runs_of_other_settings_are_not_reported_as_these(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = solving.Goal("InvertedPendulum-v4", 3.0, 2000)
    monkeypatch.setattr(solving, "GOALS", (goal,))
    plan = OurPlan(goal.env_id, 0, load("default", goal.env_id, {"gamma": 0.5}))
    create(tmp_path / plan.name, plan.config, plan.facts)
    with pytest.raises(SystemExit) as stopped:
        solve.main(["--runs", str(tmp_path)])
    assert stopped.value.code == 2
    assert "holds another run, which differs in gamma (0.5 and 0.99): choose other --runs" in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_a_goal_that_is_missed_is_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "GOALS", (solving.Goal("InvertedPendulum-v4", 1e9, 2000),))
    assert solve.main(["--runs", str(tmp_path)]) == 1
    assert "| not " in capsys.readouterr().out

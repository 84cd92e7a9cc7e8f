"""Runs whose updates are few: what they return after so many of them."""

from pathlib import Path

import pytest
from synthetic_studies import HIGH, LOW, write_group

from geonpg.scripts.reports.few_updates import large_numbers, large_tables, over_reference_after
from geonpg.scripts.reports.reading import read_study


def write_large(folder: Path, env_id: str, method: str, finals: list[float], steps: int = 100_000) -> None:
    """Runs of updates of 1000 steps, evaluated ten times."""
    write_group(folder / env_id / "large" / method, finals, steps)
    for path in (folder / env_id / "large" / method).glob("*/config.toml"):
        path.write_text(path.read_text() + "n_envs = 10\nn_steps = 100\n")


def test_returns_are_those_of_the_evaluation_after_the_updates(tmp_path: Path) -> None:
    for env_id in ("Hopper-v4", "Walker2d-v4"):
        write_large(tmp_path, env_id, "geo", HIGH)
        write_large(tmp_path, env_id, "ng", LOW)
    write_group(tmp_path / "Hopper-v4/default/geo", HIGH)
    study = read_study(tmp_path)
    numbers = large_numbers(study)
    group = study.groups_of(next(c for c in study.contenders if str(c) == "large/geo"))["Hopper-v4"]
    for updates in (20, 50, 100):
        expected = group.finals_at(1000 * updates).mean()
        assert numbers[f"large-curves/Hopper-v4/geo/{updates}"] == pytest.approx(expected)
        assert numbers[f"large-curves/all/geo_over_ng/{updates}"] == 1
        (comparison,) = over_reference_after(study, updates)
        assert comparison.verdict() == "better"
    early, middle, late = (numbers[f"large-curves/Hopper-v4/geo/{updates}"] for updates in (20, 50, 100))
    assert early < middle < late == pytest.approx(sum(HIGH) / len(HIGH))
    returns, verdicts = large_tables(study)
    assert len(returns.rows) == 4
    assert [row[:2] for row in verdicts.rows[:3]] == [["20", "all"], ["20", "Hopper-v4"], ["20", "Walker2d-v4"]]


def test_runs_that_have_made_fewer_updates_do_not_count_as_if_they_had(tmp_path: Path) -> None:
    for method, finals in (("geo", HIGH), ("ng", LOW)):
        write_large(tmp_path, "Hopper-v4", method, finals, steps=50_000)
    study = read_study(tmp_path)
    numbers = large_numbers(study)
    assert "large-curves/Hopper-v4/geo/50" in numbers
    assert "large-curves/Hopper-v4/geo/100" not in numbers
    assert over_reference_after(study, 100) == []
    returns, verdicts = large_tables(study)
    assert [row[4] for row in returns.rows] == ["", ""]
    assert {row[0] for row in verdicts.rows} == {"20", "50"}


def test_a_study_without_such_runs_has_no_such_table(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/default/geo", HIGH)
    assert large_tables(read_study(tmp_path)) == []
    assert large_numbers(read_study(tmp_path)) == {}

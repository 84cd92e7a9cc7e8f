"""The tables of `geonpg report` on studies whose answers are known."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from synthetic_studies import HIGH, LOW, MIXED, write_group, write_run, write_study

from geonpg.scripts.common.published import PAPER_LEVEL, PUBLISHED, RANDOM_LEVEL
from geonpg.scripts.reports.reading import read_study
from geonpg.scripts.reports.reporting import read_report
from geonpg.scripts.reports.summary import runs_line
from geonpg.scripts.reports.tables import report_tables


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("study"))


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    """Rows of a table by column title; where columns share a title the last counts."""
    (table,) = [table for table in report_tables(read_study(folder)) if table.name == name]
    return [dict(zip(table.columns, map(str, row), strict=True)) for row in table.rows]


def test_verdicts(study: Path) -> None:
    found = {row["comparison"]: row["verdict"] for row in rows(study, "verdicts")}
    assert found == {
        "default/geo over default/ng": "better",
        "default/mid over default/ng": "not significant",
        "paper/geo over paper/ng": "worse",
    }
    others = {row["comparison"]: row["verdict"] for row in rows(study, "others")}
    assert set(others.values()) == {"too few seeds"}
    assert {name.rpartition(" ")[2] for name in others} == {"ppo/zoo"}
    tasks = {(row["task"], row["comparison"]): row for row in rows(study, "differences")}
    geo = tasks["Walker2d-v4", "default/geo over default/ng"]
    assert (geo["verdict"], geo["difference"], geo["seeds"]) == ("better", "1700", "5")


def test_an_ablation_is_held_against_the_whole_after_as_many_steps(study: Path) -> None:
    (row,) = rows(study, "ablations")
    whole = read_study(study).main
    (geo,) = [group for name, group in whole.items() if str(name) == "Hopper-v4/default/geo"]
    assert (row["ablation"], row["of"], row["verdict"]) == ("no-averaging/geo", "default/geo", "worse")
    assert float(row["whole"]) == pytest.approx(geo.finals_at(500_000).mean(), abs=0.5)
    assert float(row["whole"]) < geo.finals.mean() - 100
    assert "no-averaging" not in json.dumps(rows(study, "tasks"))


def test_where_the_whole_was_run_as_long_it_is_held_against_that(tmp_path: Path) -> None:
    """Annealed runs of different lengths do not compare on the way."""
    write_group(tmp_path / "Hopper-v4/default/geo", HIGH)
    write_group(tmp_path / "Hopper-v4/whole/geo", MIXED, steps=500_000, preset="default")
    write_group(tmp_path / "Hopper-v4/no-averaging/geo", LOW, steps=500_000, preset="default")
    (row,) = rows(tmp_path, "ablations")
    assert (row["ablation"], row["whole"]) == ("no-averaging/geo", "1200")


def test_steps_to_the_paper_s_level(study: Path) -> None:
    found = {(row["task"], row["method"]): row for row in rows(study, "levels")}
    geo, ng = (found["Hopper-v4", f"default/{method}"] for method in ("geo", "ng"))
    level = PAPER_LEVEL["Hopper"]
    (group,) = [g for name, g in read_study(study).main.items() if str(name) == "Hopper-v4/default/geo"]
    first = [min(x for x, y in zip(r.training.x, r.training.y, strict=True) if y >= level) for r in group.runs]
    assert geo["each seed"] == ", ".join(f"{x / 1e6:.2f} M" for x in first)
    assert geo["median"] == f"{np.median(first) / 1e6:.2f} M"
    assert (geo["seeds there"], ng["seeds there"], ng["median"]) == ("5 of 5", "0 of 5", "never")


def test_published_rows_stand_beside_ours(study: Path) -> None:
    found = rows(study, "published")
    ours = [row for row in found if row["method"] == "default/geo"]
    assert [row["metric"] for row in ours] == ["FIN", "TRN"]
    assert ours[0]["Hopper"] == f"2900 ± {np.std(HIGH):.0f}"
    assert ours[0]["Reacher"] == ""
    theirs = [row for row in found if not row["source"].startswith("here")]
    assert [row["method"] for row in theirs] == [row.method for row in PUBLISHED]
    assert all(row["metric"] in ("TRN", "FIN", "MAX") for row in found)


def test_ablations_alone(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/whole/geo", HIGH, preset="default")
    write_group(tmp_path / "Hopper-v4/no-averaging/geo", LOW, preset="default")
    write_group(tmp_path / "Hopper-v4/no-averaging/ng", LOW, preset="paper")  # of another whole
    verdicts = {row["ablation"]: row["verdict"] for row in rows(tmp_path, "ablations")}
    assert verdicts == {"no-averaging/geo": "worse", "no-averaging/ng": "nothing to compare with"}


def test_longer_runs_are_no_ablation_and_do_not_push_the_study_aside(tmp_path: Path) -> None:
    write_group(tmp_path / "study/Hopper-v4/default/geo", LOW)
    write_group(tmp_path / "long/Hopper-v4/long/geo", HIGH, steps=10_000_000, preset="default")
    (row,) = rows(tmp_path, "long")
    assert (row["task"], row["method"], row["steps"]) == ("Hopper-v4", "default/geo", "10.00 M")
    assert float(row["evaluation"]) == pytest.approx(np.mean(HIGH), abs=0.5)
    assert [table.name for table in report_tables(read_study(tmp_path)) if table.name == "ablations"] == []
    (main,) = rows(tmp_path, "tasks")
    assert main["steps"] == "1.00 M"
    assert "5 longer runs" in runs_line(read_study(tmp_path))
    assert "ablation" not in runs_line(read_study(tmp_path))
    assert read_report(tmp_path).numbers()["final/Hopper-v4/long/geo"] == pytest.approx(np.mean(HIGH))


def test_A9_what_runs_keep_to_the_end(tmp_path: Path) -> None:
    write_run(tmp_path / "Swimmer-v5/default/geo/0", 100)
    fallen = write_run(tmp_path / "Swimmer-v5/default/geo/1", 100) / "evaluations.csv"
    fallen.write_text(fallen.read_text().replace("1000000,100,", "1000000,10,"))
    (row,) = rows(tmp_path, "kept")
    assert row["each seed"].split(", ")[0] == "100%"
    best = 100 * (1 - 0.9 * math.exp(-4.5))
    share = (10 - RANDOM_LEVEL["Swimmer"]) / (best - RANDOM_LEVEL["Swimmer"])
    assert row["least"] == f"{share:.0%}"
    assert read_report(tmp_path).numbers()["kept/Swimmer-v5/default/geo"] == pytest.approx(share)

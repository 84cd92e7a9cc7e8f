"""The lines at the top of the page."""

from pathlib import Path

from synthetic_studies import write_group, write_run

from geonpg.scripts.branches.rows import BRANCH_RULES, Branch
from geonpg.scripts.reports.reading import read_study
from geonpg.scripts.reports.summary import geometry_line, results_line, runs_line


def test_D_one_run_is_one_run(tmp_path: Path) -> None:
    write_run(tmp_path / "CartPole-v1/default/geo/0", 500)
    study = read_study(tmp_path)
    assert runs_line(study) == "1 finished run: 1 method on 1 task, 1 seed each, 1.00 M steps."
    assert results_line(study) == "return of the last evaluation: default/geo 500 on CartPole-v1."
    assert geometry_line(study, {}) == "no verdict without 5 seeds of ng and of another method."


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/default/geo", [1000, 1100])
    write_run(tmp_path / "Hopper-v4/default/geo/2", 1000, steps=500_000)
    assert runs_line(read_study(tmp_path)).endswith("1.00 M steps. 1 run left out, listed below.")


def test_branches_on_one_task_are_told_in_its_returns(tmp_path: Path) -> None:
    rows = {rule: [Branch(1, rule, 100.0 + 7 * (rule == "geo"), 0, 0, 1, 0, 0)] * 50 for rule in BRANCH_RULES}
    line = geometry_line(read_study(tmp_path), {"Hopper-v4": rows})
    assert line == "from the same checkpoints geo changes the return on Hopper-v4 by 7.00 (7.00 to 7.00), better."

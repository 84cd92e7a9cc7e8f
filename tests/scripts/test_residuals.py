"""The command `geonpg residuals`: what it leaves behind, stopping and continuing, and what it refuses."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from commands import refused

from geonpg.scripts import residuals
from geonpg.scripts.least_squares.design import ALL_PROBLEMS, QUICK
from geonpg.scripts.least_squares.methods import ALL_METHODS

TINY = ["--quick", "--seeds", "1000", "--jacobians", "2", "--width", "4"]
DESIGN = asdict(replace(QUICK, width=4, jacobians=2))
SOME = [*TINY, "--problems", "poisson", "rosenbrock", "--methods", "ng", "adam", "scipy-lm"]


def numbers(capsys: pytest.CaptureFixture[str], *arguments: object) -> Mapping[str, float]:
    capsys.readouterr()
    assert residuals.main([*map(str, arguments), "--json"]) == 0
    found: Mapping[str, float] = json.loads(capsys.readouterr().out)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of results by its name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/**/*") if path.is_file()}


def test_the_command_knows_the_names_without_importing_them() -> None:
    assert residuals.PROBLEM_NAMES == ALL_PROBLEMS
    assert tuple(ALL_METHODS) == residuals.METHOD_NAMES


def test_a_study_is_written_and_the_same_command_continues_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = numbers(capsys, *SOME, "--results", tmp_path)
    before = contents(tmp_path)
    assert set(before) == {
        "poisson/geo/1000.json", "poisson/ng/1000.json", "poisson/adam/1000.json", "poisson/scipy-lm/1000.json",
        "rosenbrock/geo.csv", "rosenbrock/ng.csv", "rosenbrock/scipy-lm.csv",
    }  # fmt: skip
    for name in ("tables.md", "numbers.json", "poisson.png", "poisson.svg"):
        assert (tmp_path / name).stat().st_size > 0
    assert {"residuals/poisson/ng_over_geo", "residuals/poisson/adam_over_geo/equal_time"} <= first.keys()
    assert json.loads((tmp_path / "numbers.json").read_text()).keys() == first.keys()
    (tmp_path / "poisson/ng/1000.json").unlink()
    rows = (tmp_path / "rosenbrock/ng.csv").read_text().splitlines(keepends=True)
    (tmp_path / "rosenbrock/ng.csv").write_text("".join(rows[:-1]))
    second = numbers(capsys, *SOME, "--results", tmp_path)
    after = contents(tmp_path)
    assert {name for name in before if before[name] != after[name]} <= {"poisson/ng/1000.json"}, "only times may differ"
    assert second["residuals/poisson/ng_over_geo"] == first["residuals/poisson/ng_over_geo"]


def test_a_report_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, residuals.main, *SOME, "--results", tmp_path, "--only-report")
    assert said.endswith("holds no study of residuals\n")
    assert not contents(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--problems", "poison"], "unknown problem 'poison' (did you mean poisson?)"),
        (["--methods", "newton"], "unknown method 'newton'"),
        (["--seeds", "a"], "seeds are given as 0-4 or 0,2,5, not 'a'"),
        (["--width", "65"], "must be from 1 to 64, not 65"),
        (["--width", "32"], "scipy-lm needs as many residuals as parameters, and there are 480"),
        (["--jacobians", "0"], "must be from 1 to 10,000, not 0"),
    ],
)
def test_refusals(arguments: list[str], answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer in refused(capsys, residuals.main, *arguments, "--results", tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_design_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "design.json").write_text(json.dumps({**DESIGN, "width": 5}))
    said = refused(capsys, residuals.main, *SOME, "--results", tmp_path)
    assert "was made with other settings, width (5 and 4)" in said


def test_a_damaged_course_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*TINY, "--problems", "poisson", "--methods", "geo", "--results", tmp_path, "--only-report"]
    (tmp_path / "design.json").write_text(json.dumps(DESIGN))
    path = tmp_path / "poisson/geo/1000.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert f"{path} is no course of a run" in refused(capsys, residuals.main, *arguments)

"""One run, as the files in its folder tell it: what `geonpg train` leaves."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
from html_pages import read_page
from short_runs import Runs
from synthetic_studies import write_run

from geonpg.scripts.reports.reading import read_study
from geonpg.scripts.reports.reporting import read_report
from geonpg.scripts.reports.study import Study


def left_by_train(folder: Path, name: str, final: float = 1000, **changed: object) -> Path:
    """A run in a folder of any name, with the default preset's settings but those that are changed."""
    env_id, preset, method, seed = name.split("_")
    made = write_run(folder / "made" / env_id / preset / method / seed, final)
    settings = {"learning_rate": 0.3, "gamma": 0.99, **changed}
    with (made / "config.toml").open("a") as file:
        file.writelines(f"{key} = {value}\n" for key, value in settings.items())
    suffix = "".join(f"_{key}={value}" for key, value in changed.items())
    return made.rename(folder / (name + suffix))


def shorten(run: Path, lines: int) -> Path:
    for path in run.glob("*.csv"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    return run


def seeds(study: Study) -> dict[str, list[int]]:
    return {str(name): [run.seed for run in group.runs] for name, group in study.groups.items()}


def test_D_reads_the_run_folders_of_train(tmp_path: Path) -> None:
    for name in ("Walker2d-v4_default_geo_0", "Walker2d-v4_default_geo_1", "Walker2d-v4_default_ng_0"):
        left_by_train(tmp_path, name)
    study = read_study(tmp_path)
    assert seeds(study) == {"Walker2d-v4/default/geo": [0, 1], "Walker2d-v4/default/ng": [0]}
    assert study.left_out == []


def test_D_a_run_is_known_by_its_files_and_not_by_its_folder(tmp_path: Path) -> None:
    left_by_train(tmp_path, "Walker2d-v4_default_geo_3").rename(tmp_path / "the good one")
    assert seeds(read_study(tmp_path)) == {"Walker2d-v4/default/geo": [3]}
    assert seeds(read_study(tmp_path / "the good one")) == {"Walker2d-v4/default/geo": [3]}


def test_D_runs_with_other_settings_are_not_seeds_of_one_group(tmp_path: Path) -> None:
    """What is not the preset's is told; the seed may be the same."""
    left_by_train(tmp_path, "Walker2d-v4_default_geo_0")
    left_by_train(tmp_path, "Walker2d-v4_default_geo_0", learning_rate=0.1)
    left_by_train(tmp_path, "Walker2d-v4_default_geo_1", learning_rate=0.1)
    study = read_study(tmp_path)
    assert seeds(study) == {"Walker2d-v4/default/geo": [0], "Walker2d-v4/default/geo, learning_rate=0.1": [0, 1]}
    assert study.left_out == []


def test_D_where_the_preset_is_not_known_every_side_tells_its_settings(tmp_path: Path) -> None:
    for rate in (0.1, 0.2):
        run = left_by_train(tmp_path, "Walker2d-v4_gone_geo_0", learning_rate=rate)
        facts = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**facts, "preset": str(tmp_path / "gone.toml")}))
    assert list(seeds(read_study(tmp_path))) == [f"Walker2d-v4/gone/geo, learning_rate={rate}" for rate in (0.1, 0.2)]


def test_D_how_often_a_run_was_evaluated_makes_no_other_group(tmp_path: Path) -> None:
    left_by_train(tmp_path, "Walker2d-v4_default_geo_0", eval_every=5000, env_threads=3)
    left_by_train(tmp_path, "Walker2d-v4_default_geo_1", eval_every=9000)
    assert seeds(read_study(tmp_path)) == {"Walker2d-v4/default/geo": [0, 1]}


def test_D_runs_of_train_beside_those_of_compare(tmp_path: Path) -> None:
    write_run(tmp_path / "study/Walker2d-v4/default/geo/0", 1000)
    left_by_train(tmp_path, "Walker2d-v4_default_geo_1")
    assert seeds(read_study(tmp_path)) == {"Walker2d-v4/default/geo": [0, 1]}


def test_D_of_two_runs_of_a_seed_the_one_that_has_ended_counts(tmp_path: Path) -> None:
    shorten(left_by_train(tmp_path, "Walker2d-v4_default_geo_0").rename(tmp_path / "a"), lines=5)
    left_by_train(tmp_path, "Walker2d-v4_default_geo_0").rename(tmp_path / "b")
    study = read_study(tmp_path)
    assert seeds(study) == {"Walker2d-v4/default/geo": [0]}
    assert study.left_out == ["a is a second run of Walker2d-v4/default/geo, seed 0: only one counts"]


def test_D_without_a_finished_run_there_are_curves(tmp_path: Path) -> None:
    shorten(left_by_train(tmp_path, "Walker2d-v4_default_geo_0"), lines=5)
    study = read_study(tmp_path)
    assert (dict(study.groups), [run.seed for run in study.unfinished]) == ({}, [0])
    assert study.left_out == ["Walker2d-v4_default_geo_0 is incomplete: evaluated up to step 400000 of 1000000"]
    page = read_page(read_report(tmp_path).page())
    assert len(page.all("figure")) == 3  # by training, by evaluation, by the clock
    assert page.all("table") == []
    assert page.all("ul", "summary")[0].all("li")[0].text.startswith("Runs: No run has ended yet. 1 unfinished run")


def test_D_a_run_before_its_first_evaluation_shows_what_it_has(tmp_path: Path) -> None:
    run = left_by_train(tmp_path, "Walker2d-v4_default_geo_0")
    shorten(run, lines=5)
    (run / "evaluations.csv").write_text("steps,mean,std,returns\n")
    assert len(read_page(read_report(tmp_path).page()).all("figure")) == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda run: shorten(run, lines=2), "is incomplete: no episode of training has ended yet"),
        (lambda run: (run / "curve.csv").unlink(), "is incomplete: it has no curve.csv"),
        (lambda run: (run / "run.json").write_text('{"env": 5}'), "is damaged: run.json must name an environment"),
        (lambda run: (run / "config.toml").write_text("steps = 5"), "is damaged: config.toml names no method"),
    ],
)
def test_D_what_cannot_be_shown_is_named(change: Callable[[Path], object], sentence: str, tmp_path: Path) -> None:
    change(left_by_train(tmp_path, "Walker2d-v4_default_geo_0"))
    study = read_study(tmp_path)
    assert study.left_out[0].startswith(f"Walker2d-v4_default_geo_0 {sentence}")
    assert not study.groups
    assert not study.unfinished


def test_D_reports_what_train_left(runs: Runs, tmp_path: Path) -> None:
    """A real run, whose evaluations lie beyond its steps."""
    copytree(runs("cartpole"), tmp_path / "CartPole-v1_default_geo_3")
    page = read_page(read_report(tmp_path).page())
    assert [heading.text for heading in page.all("h2")][:3] == [
        "Sample efficiency",
        "Deterministic evaluations",
        "Wall-clock",
    ]
    assert len(page.all("figure")) == 3
    assert not re.search(r"\b1 (task|seed|run|method)s\b", page.text)
    assert not [note for note in page.all("p", "note") if "Dotted" in note.text or "All tasks" in note.text]
    assert not [table for table in page.all("table") if "source" in table.rows()[0]]  # nothing published beside it

"""Reading a folder of runs."""

from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
from short_runs import Runs
from synthetic_studies import write_group, write_run

from geonpg.scripts.reports.reading import read_study
from geonpg.scripts.reports.recorded_run import Contender, GroupName

GEO = GroupName("Hopper-v4", Contender("default", "geo"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "Hopper-v4/default/geo/0", 2000)


def test_reads_every_run(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/default/geo", [1000, 2000, 3000])
    write_group(tmp_path / "Hopper-v4/ppo/zoo", [500, 600])
    study = read_study(tmp_path)
    assert study.left_out == []
    assert [(str(name), group.seeds) for name, group in study.groups.items()] == [
        ("Hopper-v4/default/geo", 3),
        ("Hopper-v4/ppo/zoo", 2),
    ]
    geo = study.groups[GEO]
    assert geo.finals.tolist() == [1000, 2000, 3000]
    assert (geo.budget, geo.episodes) == (1_000_000, 20)
    assert geo.minutes == pytest.approx(1000 / 60)
    assert study.contenders == [Contender("default", "geo"), Contender("ppo", "zoo")]
    assert study.our_presets == ["default"]


def test_a_study_may_lie_deeper(tmp_path: Path) -> None:
    write_run(tmp_path / "study/Hopper-v4/default/geo/0", 1000)
    assert list(read_study(tmp_path).groups) == [GEO]


def test_reads_a_run_that_train_left(runs: Runs, tmp_path: Path) -> None:
    folder = tmp_path / "InvertedPendulum-v4/default/geo/3"
    copytree(runs("pendulum"), folder)
    study = read_study(tmp_path)
    assert study.left_out == []
    (group,) = study.groups.values()
    assert group.episodes == 20
    assert group.finals[0] == float((folder / "evaluations.csv").read_text().splitlines()[-1].split(",")[1])


def test_a_label_in_the_place_of_the_preset_is_an_ablation(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/default/geo", [1000])
    write_group(tmp_path / "Hopper-v4/no-averaging/geo", [800], preset="default")
    study = read_study(tmp_path)
    assert study.groups[GroupName("Hopper-v4", Contender("no-averaging", "geo"))].ablation_of == Contender(
        "default", "geo"
    )
    assert list(study.main) == [GEO]


def test_a_preset_from_a_file_is_called_after_it(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/tuned/geo", [1000], preset="some/where/tuned.toml")
    assert [str(contender) for contender in read_study(tmp_path).contenders] == ["tuned/geo"]


def shorten(path: Path) -> None:
    """To half of its lines."""
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) // 2]))


def replace(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize("name", ["config.toml", "run.json", "curve.csv", "evaluations.csv", "times.csv"])
def test_a_missing_file_is_an_incomplete_run(run: Path, name: str) -> None:
    (run / name).unlink()
    study = read_study(run.parents[3])
    assert study.left_out == [f"Hopper-v4/default/geo/0 is incomplete: it has no {name}"]
    assert study.groups == {}


def test_a_run_that_has_not_ended_is_incomplete(run: Path) -> None:
    shorten(run / "evaluations.csv")
    assert read_study(run.parents[3]).left_out == [
        "Hopper-v4/default/geo/0 is incomplete: evaluated up to step 400000 of 1000000"
    ]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("config.toml", lambda path: path.write_text("steps = ")),
        ("config.toml", lambda path: path.write_text('method = "geo"')),
        ("config.toml", lambda path: path.write_bytes(b"\xff\xfe")),
        ("config.toml", lambda path: path.write_text('method = "geo"\nsteps = true')),
        ("config.toml", lambda path: path.write_text("steps = " + "[" * 5000)),
        ("run.json", lambda path: path.write_text("[" * 100_000)),
        ("curve.csv", lambda path: path.write_text("steps,return\n" + "1" * 200_000)),  # more than a cell may hold
        ("run.json", lambda path: path.write_text("{")),
        ("run.json", lambda path: path.write_text("[]")),
        ("run.json", replace("Hopper", "Walker2d")),
        ("run.json", replace('"seed": 0', '"seed": 7')),
        ("curve.csv", replace("return", "yield")),
        ("curve.csv", lambda path: path.write_text(path.read_text()[:-30] + "\n7")),
        ("curve.csv", lambda path: path.write_text("")),
        ("curve.csv", replace("1000000,", "1" * 400 + ",")),  # a whole number that no float can hold
        ("curve.csv", lambda path: path.write_text("steps,return\n1000000,nan\n")),
        ("evaluations.csv", lambda path: path.write_text("steps,mean,std,returns\n1000000,nan,1,1 1\n")),
        ("evaluations.csv", lambda path: path.write_text("steps,mean,std\n1000000,5,1\n")),
        ("times.csv", replace("900000,900.0", "900000,1.0")),
        ("times.csv", lambda path: path.write_text("steps,seconds\n")),
    ],
)
def test_a_damaged_file_is_named(run: Path, name: str, damage: Callable[[Path], object]) -> None:
    write_run(run.parent / "1", 1000)
    damage(run / name)
    study = read_study(run.parents[3])
    (sentence,) = study.left_out
    assert sentence.startswith(f"Hopper-v4/default/geo/0 is damaged: {name} ")
    assert [run.seed for run in study.groups[GEO].runs] == [1]


def test_a_shorter_run_is_left_out_of_its_group(run: Path) -> None:
    write_run(run.parent / "1", 1000, steps=500_000)
    study = read_study(run.parents[3])
    assert study.left_out == ["Hopper-v4/default/geo/1 is shorter: 500000 of 1000000 steps"]
    assert study.groups[GEO].seeds == 1


def test_C11_a_second_run_of_a_seed_is_left_out_and_not_called_damaged(tmp_path: Path) -> None:
    for where in ("one", "two"):
        write_run(tmp_path / where / "Hopper-v4/default/geo/0", 1000)
    study = read_study(tmp_path)
    assert study.left_out == [
        "two/Hopper-v4/default/geo/0 is a second run of Hopper-v4/default/geo, seed 0: only one counts"
    ]
    assert study.groups[GEO].seeds == 1

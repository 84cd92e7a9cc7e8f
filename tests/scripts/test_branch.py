"""`geonpg branch`: what it runs, what it leaves, what it refuses."""

import json
from pathlib import Path

import pytest
from tiny_branches import TINY, branch_row, write_design
from tiny_maps import TINY_GRID, write_grid

from geonpg.scripts import branch
from geonpg.scripts.branches.design import DESIGN, design_of
from geonpg.scripts.branches.rows import BRANCH_RULES, write_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_design(tmp_path)


def arguments(folder: Path, *more: str) -> list[str]:
    flags = [part for name, value in TINY.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    preset = folder.parent / "small.toml"
    return ["--results", str(folder), "--envs", "Reacher-v4", "--preset", str(preset), *flags, *more]


def test_the_command_runs_what_is_missing_and_reports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / DESIGN).unlink()
    assert branch.main(arguments(folder, "--checkpoints", "1", "--json")) == 0
    assert design_of(folder).checkpoints == 1
    numbers = json.loads(capsys.readouterr().out)
    assert set(numbers) >= {f"branch/Reacher-v4/{rule}/score/low" for rule in ("mid", "geo", "geof", "geo-published")}
    for name in ("tables.md", "branch.png", "branch.svg"):
        assert (folder / name).stat().st_size > 0
    assert "too few checkpoints" in (folder / "tables.md").read_text()
    assert branch.main(arguments(folder, "--only-report")) == 0
    config = folder / "Reacher-v4" / "config.toml"
    config.write_text(config.read_text().replace("gamma = 0.99", "gamma = 0.9"))
    capsys.readouterr()
    assert branch.main(arguments(folder, "--checkpoints", "1")) == 2
    assert "was made with other settings, 'gamma = 0.9' and 'gamma = 0.99': use the same, or" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["--updates", "3"],
            "was made with other settings, updates (2 and 3): use the same, or choose other --results",
        ),
        (["--envs", "Nowhere-v4"], "Nowhere-v4"),
        (["--updates", "0"], "argument --updates: must be from 1 to 1,000,000, not 0"),
        (["--episodes", "1e9"], "argument --episodes: must be from 1 to 10,000, not 1e9"),
        (["--preset", "tuned"], "tuned"),
        (["--envs", "CartPole-v1"], "CartPole-v1 cannot be set back to a state: branch needs MuJoCo tasks like"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], words: str
) -> None:
    try:
        code = branch.main(arguments(folder, *more))
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    printed = capsys.readouterr().err
    assert code == 2
    assert words in printed
    assert "Traceback" not in printed
    assert not list(folder.glob("*/*.csv"))


def test_a_report_of_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert branch.main(["--results", str(tmp_path), "--only-report"]) == 2
    assert "has no checkpoint yet that every rule has been tried at" in capsys.readouterr().err


def test_C16_without_a_folder_nothing_goes_into_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for base in ("results", "runs"):
        (tmp_path / base / "branch/Hopper-v4").mkdir(parents=True)
        rows = [branch_row(rule, 100.0, 1.0, 512) for rule in BRANCH_RULES]
        write_rows(tmp_path / base / "branch/Hopper-v4/1000.csv", rows)
    assert branch.main(["--only-report"]) == 0
    assert {path.name for path in Path("runs/branch").iterdir()} > {"tables.md", "branch.png"}
    assert [path.name for path in Path("results/branch").iterdir()] == ["Hopper-v4"]


def test_a_damaged_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Hopper-v4").mkdir()
    (tmp_path / "Hopper-v4" / "1000.csv").write_text("a,b\n1,2\n")
    assert branch.main(["--results", str(tmp_path), "--only-report"]) == 2
    assert "1000.csv is no table of branches" in capsys.readouterr().err


# maps of long steps


def test_a_map_is_made_reported_and_pinned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_grid(tmp_path)
    arguments = ["--grid", str(tmp_path / "tiny.toml"), "--results", str(folder)]
    assert branch.main([*arguments, "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert "large/all/256/0.1/geo_over_ng" in numbers
    assert "large/all/256/0.1/geo_over_ng/low" not in numbers  # of a single trunk there is no interval
    assert "large/Reacher-v4/64/0.03/kfac/ng/held_out" in numbers
    for name in ("tables.md", "map.png", "map.svg"):
        assert (folder / name).stat().st_size > 0
    assert "too few trunks" in (folder / "tables.md").read_text()
    assert branch.main([*arguments, "--only-report"]) == 0
    config = folder / "Reacher-v4" / "config.toml"
    config.write_text(config.read_text().replace("gamma = 0.99", "gamma = 0.9"))
    capsys.readouterr()
    assert branch.main(arguments) == 2
    assert "was made with other settings, 'gamma = 0.9' and 'gamma = 0.99': use the same, or" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Reacher-v4", "CartPole-v1", "CartPole-v1 cannot be set back to a state"),
        ("batches = [64, 256]", "batches = [63, 256]", "a batch of 63 steps is not made of 4 environments"),
        ("held_out = 256", "held_out = 200", "held_out must be a multiple of a rollout, 128 steps"),
        ('method = "ng"', 'method = "gn"', "method must be one of ng, mid, geo, geof, not 'gn'"),
        ('preset = "default"', 'preset = "defalt"', "defalt"),
    ],
)
def test_what_is_wrong_with_a_grid_is_said_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str
) -> None:
    (tmp_path / "grid.toml").write_text(TINY_GRID.replace('"256/0.1" =', '# "256/0.1" =').replace(old, new))
    assert branch.main(["--grid", str(tmp_path / "grid.toml"), "--results", str(tmp_path / "map")]) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert "Traceback" not in printed
    assert not (tmp_path / "map").exists()


def test_the_two_experiments_do_not_share_a_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.toml").write_text(TINY_GRID)
    assert branch.main(["--grid", str(tmp_path / "tiny.toml"), "--results", str(folder)]) == 2
    assert "holds another experiment of geonpg branch: choose --results" in capsys.readouterr().err

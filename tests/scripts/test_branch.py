"""`geonpg branch`: pairs that are pairs, rows that survive a stop, and an analysis that finds what is there."""

import json
from pathlib import Path

import numpy as np
import pytest

from geonpg.agents.checkpoint import read, write
from geonpg.agents.state import get_state, set_state
from geonpg.agents.stepping import Stepper
from geonpg.scripts import branch
from geonpg.scripts.branches import design as branch_design
from geonpg.scripts.branches import trunk as branch_trunk
from geonpg.scripts.branches.analysis import ALL, CHECKPOINTS, branch_tables, difference, read_branches
from geonpg.scripts.branches.design import Design
from geonpg.scripts.branches.trunk import RULES, Bench, Branch, grow, read_rows, rows_path, write_rows
from geonpg.scripts.common.intervals import verdict

TINY = {"checkpoints": 2, "every": 512, "updates": 2, "episodes": 2, "held_out": 2, "trunks": 1}
PRESET = """description = "small"
n_envs = 4
n_steps = 32
hidden = [8]
critic_hidden = [8]
steps = 4000
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    preset = tmp_path / "small.toml"
    preset.write_text(PRESET)
    results = tmp_path / "branch"
    results.mkdir()
    (results / branch_design.DESIGN).write_text(json.dumps({**vars(Design(preset=str(preset), **TINY))}))
    return results


def arguments(folder: Path, *more: str) -> list[str]:
    flags = [part for name, value in TINY.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    preset = folder.parent / "small.toml"
    return ["--results", str(folder), "--envs", "Reacher-v4", "--preset", str(preset), *flags, *more]


def test_every_rule_begins_at_the_same_point_whoever_was_before(folder: Path) -> None:
    """Branching changes neither the checkpoint nor the trunk, and the ng branch is the trunk's own future."""
    bench = Bench(branch_design.design_of(folder), "Reacher-v4", 1000)
    kept = folder / "kept.state"
    branch_trunk.train(bench, 512, kept, lambda: False)
    unseen = bench.unseen(kept, 1)
    first = bench.branch("geo", kept, unseen, 1)
    reference = bench.branch("ng", kept, unseen, 1)
    assert bench.branch("geo", kept, unseen, 1) == first
    assert reference.score != first.score
    assert reference.steps == first.steps == 512
    future = bench.agent("ng")
    stepper = Stepper(future, 4000)
    set_state(future, read(kept))
    for _ in range(TINY["updates"]):
        stepper.step()
    assert unseen.gain(future) == reference.surrogate


def test_a_stopped_trunk_goes_on_as_if_nothing_had_been(folder: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / branch_design.DESIGN).write_text((folder / branch_design.DESIGN).read_text())
    assert grow(whole, "Reacher-v4", 1000, lambda: False)
    looks = iter(range(1000))
    for patience in (3, 8, 6, 7):  # stopped in the trunk, and between branches
        end = next(looks) + patience
        grow(folder, "Reacher-v4", 1000, lambda end=end: next(looks) > end)
    assert grow(folder, "Reacher-v4", 1000, lambda: False)
    assert rows_path(folder, "Reacher-v4", 1000).read_text() == rows_path(whole, "Reacher-v4", 1000).read_text()
    assert not list(folder.glob("*/*.state"))
    rows = read_rows(rows_path(folder, "Reacher-v4", 1000))
    assert [row.rule for row in rows] == 2 * list(RULES)
    assert [row.steps for row in rows] == 5 * [512] + 5 * [1024]


def test_the_command_runs_what_is_missing_and_reports(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert branch.main(arguments(folder, "--json")) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert set(numbers) >= {f"branch/Reacher-v4/{rule}/score/low" for rule in ("mid", "geo", "geof", "geo-published")}
    for name in ("tables.md", "branch.png", "branch.svg"):
        assert (folder / name).stat().st_size > 0
    assert "too few checkpoints" in (folder / "tables.md").read_text()
    assert branch.main(arguments(folder, "--only-report")) == 0
    config = folder / "Reacher-v4" / "config.toml"
    config.write_text(config.read_text().replace("gamma = 0.99", "gamma = 0.9"))
    capsys.readouterr()
    assert branch.main(arguments(folder)) == 2
    assert "the preset had other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--updates", "3"], "use the same numbers, or choose other --results"),
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


def drawn(rule: str, base: float, shift: float, step: int) -> Branch:
    return Branch(step, rule, base + shift, base / 100 + shift / 1000, 0.0, 1.0 + shift / 1000, abs(shift) / 1000, 0.0)


def test_a_difference_that_is_there_is_found_and_one_that_is_not_is_not(tmp_path: Path) -> None:
    """Checkpoints differ by thousands, the rules by a hundred: only pairs can see it."""
    rng = np.random.default_rng(0)
    shifts = {"ng": 0.0, "mid": 0.0, "geo": 100.0, "geof": -100.0, "geo-published": 0.0}
    for env_id in ("HalfCheetah-v4", "Hopper-v4"):
        (tmp_path / env_id).mkdir()
        rows = []
        for step in range(CHECKPOINTS.least):
            base = float(rng.uniform(0, 5000))
            rows += [drawn(rule, base, shift + float(rng.normal(0, 20)), step) for rule, shift in shifts.items()]
        under_way = drawn("ng", 0.0, 0.0, CHECKPOINTS.least)
        write_rows(tmp_path / env_id / "1000.csv", [*rows, under_way])
    study = read_branches(tmp_path)
    assert len(study["Hopper-v4"]["ng"]) == CHECKPOINTS.least
    found = difference(study, "geo", "score", "Hopper-v4")
    assert found.low < 100 < found.high
    assert found.high - found.low < 50
    spans = {"HalfCheetah-v4": 2160 + 260, "Hopper-v4": 2640 - 19.5}
    means = [float(difference(study, "geo", "score", env_id).value) / span for env_id, span in spans.items()]
    assert float(difference(study, "geo", "score", ALL).value) == pytest.approx(np.mean(means))
    by_name = {table.name: table for table in branch_tables(study)}
    verdicts = {(row[0], row[1]): row[2] for row in by_name["score"].rows}
    for place in (ALL, "HalfCheetah-v4", "Hopper-v4"):
        assert verdicts[place, "geo"] == "better"
        assert verdicts[place, "geof"] == "worse"
        assert verdicts[place, "mid"] == "not significant"
    misses = {(row[0], row[1]): row[2] for row in by_name["kl_miss"].rows}
    assert misses[ALL, "geo"] == "worse"
    assert verdict(found, CHECKPOINTS.least, CHECKPOINTS, good=0) == "higher"


def test_C16_without_a_folder_nothing_goes_into_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for base in ("results", "runs"):
        (tmp_path / base / "branch/Hopper-v4").mkdir(parents=True)
        write_rows(tmp_path / base / "branch/Hopper-v4/1000.csv", [drawn(rule, 100.0, 1.0, 512) for rule in RULES])
    assert branch.main(["--only-report"]) == 0
    assert {path.name for path in Path("runs/branch").iterdir()} > {"tables.md", "branch.png"}
    assert [path.name for path in Path("results/branch").iterdir()] == ["Hopper-v4"]


def test_the_state_file_is_not_taken_for_a_result(folder: Path) -> None:
    bench = Bench(branch_design.design_of(folder), "Reacher-v4", 1000)
    (folder / "Reacher-v4").mkdir()
    write(folder / "Reacher-v4" / "1000.state", get_state(bench.agents["ng"]))
    assert not read_branches(folder)


def test_a_damaged_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Hopper-v4").mkdir()
    (tmp_path / "Hopper-v4" / "1000.csv").write_text("a,b\n1,2\n")
    assert branch.main(["--results", str(tmp_path), "--only-report"]) == 2
    assert "1000.csv is no table of branches" in capsys.readouterr().err

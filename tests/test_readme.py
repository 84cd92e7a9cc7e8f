"""The README is short, its code runs as it stands, and its numbers are those of the committed data."""

import re
from collections.abc import Callable
from functools import cache
from math import nan
from pathlib import Path
from statistics import mean

import pytest
from doc_pages import README, ROOT, blocks, prose, rows, section

from geonpg.scripts import cli
from geonpg.scripts.common.published import PAPER_FINALS
from geonpg.scripts.races.analysis import race_numbers, read_races
from geonpg.scripts.races.contestants import CONTESTANTS
from geonpg.scripts.reports.paper import METHODS, WORDS, paper_numbers
from geonpg.scripts.reports.reading import read_study
from geonpg.scripts.reports.recorded_run import Contender, GroupName
from geonpg.scripts.reports.study import Study

AGENT, LOADING, OPTIMISER, ENVIRONMENTS = blocks(README, "python")
ORDER = [
    "Why", "Install", "Train", "As an SB3 algorithm", "The optimiser", "The environments", "Results", "Speed",
    "Commands", "Layout", "Documentation", "Develop", "Licence and citation",
]  # fmt: skip
TASKS = [
    "HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid", "HumanoidStandup", "Swimmer", "Reacher", "InvertedPendulum",
    "InvertedDoublePendulum",
]  # fmt: skip
WALKER = "runs/Walker2d-v4_default_geo_0"
SHORT = ["--steps=512", "--n-envs=4", "--set=n_steps=32", "--set=eval_episodes=1"]

Example = Callable[[str], str]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Example:
    """Runs code in an empty folder; returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(code: str) -> str:
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
        return capsys.readouterr().out

    return run


def test_it_is_short_enough_to_be_finished() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 200
    assert max(map(len, lines)) <= 120
    assert max(len(line) for line in prose(README).splitlines() if not line.startswith(("|", "<"))) <= 100


def test_its_sections_stand_in_their_order() -> None:
    assert re.findall(r"^## (.*)$", prose(README), re.M) == ORDER


def test_the_optimiser_trains(example: Example) -> None:
    accuracy = re.search(r"epoch 4: .*accuracy ([\d.]+)", example(OPTIMISER))
    assert accuracy is not None
    assert float(accuracy[1]) > 0.95


def test_the_agent_learns(example: Example) -> None:
    """As it stands, but for fewer steps."""
    assert "learn(50_000)" in AGENT
    printed = example(AGENT.replace("50_000", "2048"))
    assert re.fullmatch(r"\d+ \+- \d+", printed.splitlines()[-1])
    assert Path("pendulum.zip").exists()
    assert Path("pendulum.npz").exists()


def test_C17_the_agent_says_how_far_it_is() -> None:
    """Its first table comes after a fifth of the steps."""
    assert "verbose=1" in AGENT


def test_the_environments_train_ppo(example: Example) -> None:
    """As it stands, but for fewer steps."""
    assert "learn(100_000)" in ENVIRONMENTS
    example(ENVIRONMENTS.replace("100_000", "2048"))


def test_a_run_is_what_it_says_and_is_loaded_in_three_lines(example: Example) -> None:
    assert cli.main(["train", "--env=Walker2d-v4", "--folder", WALKER, *SHORT]) == 0
    (listing,) = (block for block in blocks(README) if "config.toml" in block)
    listed = re.findall(r"[\w.]+\.(?:toml|json|csv|ckpt|\*)|\w+/", listing)
    assert len(listed) == 9
    for name in listed:
        assert list(Path(WALKER).glob(name.rstrip("/"))), f"a run has no {name}"
    example(LOADING)
    assert cli.main(["train", "--resume", WALKER]) == 0


@cache
def committed_study() -> Study:
    """The committed study."""
    return read_study(ROOT / "results/study")


def final_returns(task: str, method: str) -> list[float]:
    """The last evaluations of the finished runs of the committed study."""
    group = committed_study().main.get(GroupName(f"{task}-v4", Contender("default", method)))
    return [] if group is None else group.finals.tolist()


@pytest.mark.parametrize(
    ("page", "heading", "label", "method", "seeds"),
    [
        ("README.md", "Results", "geo, ours", "geo", 5),
        ("README.md", "Results", "ng, ours", "ng", 5),
        ("docs/results.md", "Sample efficiency", "geo", "geo", 5),
        ("docs/results.md", "Sample efficiency", "ng", "ng", 5),
        ("docs/results.md", "Sample efficiency", "mid, 3 seeds", "mid", 3),
        ("docs/results.md", "Sample efficiency", "geof, 3 seeds", "geof", 3),
    ],
)
def test_its_returns_are_those_of_the_committed_study(
    page: str, heading: str, label: str, method: str, seeds: int
) -> None:
    (row,) = (row for row in rows(section(ROOT / page, heading)) if row[0] == label)
    for task, shown in zip(TASKS, row[1:], strict=True):
        found = final_returns(task, method)
        if shown == "-":
            assert len(found) < seeds, f"{task} is complete"
        else:
            assert len(found) == seeds
            assert float(shown.replace(",", "")) == round(mean(found), len(shown.partition(".")[2]))


def test_the_paper_s_figure_is_that_of_the_committed_runs() -> None:
    """Our returns with their intervals, the paper's beside them, and how many of its orderings hold."""
    page = section(ROOT / "docs/paper.md", "What came out")
    found = paper_numbers(read_study(ROOT / "results/paper"))
    for task, *cells in rows(page):
        digits = 1 if task == "Reacher" else 0
        ours = [f"paper/{task}-v4/{method}" for method in METHODS]
        for key, cell in zip([*ours, f"paper-published/{task}-v4/geo"], cells[::2], strict=True):
            value, low, high = (f"{float(found.get(key + end, nan)):.{digits}f}" for end in ("", "/low", "/high"))
            assert cell == (f"{value} ({low} to {high})" if key in found else "-")
        assert [float(cell) for cell in cells[1::2]] == [PAPER_FINALS[method][task] for method in METHODS]
    confirmed, contradicted, undecided = (found[f"paper/{word}"] for word in WORDS.values())
    assert f"**{confirmed} is confirmed, {contradicted} are contradicted and {undecided} undecided**" in page


def test_the_races_returns_are_those_of_the_committed_entries() -> None:
    """Every entry that has ended stands in the page's table, and no other."""
    found = race_numbers(read_races(ROOT / "results/race"))
    shown = {}
    for task, contestant, *returns in rows(section(ROOT / "docs/race.md", "What came out")):
        for minute, cell in zip((1, 2, 5), returns, strict=False):
            value, *ends = map(float, re.findall(r"-?\d+", cell))
            key = f"race/{task}-v4/{contestant}/{minute}"
            shown[key] = value
            shown |= dict(zip((f"{key}/low", f"{key}/high"), ends, strict=False))
    minutes = re.compile(r"race/[\w-]+/[\w-]+/[125](/low|/high)?")
    assert shown == {key: round(value) for key, value in found.items() if minutes.fullmatch(key)}


def test_by_the_clock_it_says_what_the_committed_race_has() -> None:
    claim = r"HalfCheetah is at (\d+) after (\d+) seconds; .* others has (\d+) after 5 minutes"
    said = re.search(claim, " ".join(prose(README).split()))
    assert said is not None
    found = race_numbers(read_races(ROOT / "results/race"))
    assert 60 * found[f"race/HalfCheetah-v4/geonpg/minutes_to/{said[1]}"] == pytest.approx(float(said[2]))
    others = [value for key, value in found.items() if re.fullmatch(r"race/HalfCheetah-v4/(?!geonpg).*/5", key)]
    assert len(others) == 6
    assert round(max(others)) == int(said[3])


def test_by_the_clock_it_is_first_where_it_says_so() -> None:
    assert "first after 1, 2 and 5 minutes on four tasks" in prose(README)
    races = [race for race in read_races(ROOT / "results/race").races if race.minutes == 5]
    assert len(races) == 4
    assert all(race.first(minute) == ["geonpg"] for race in races for minute in (1, 2, 5))
    assert all(set(race.entries) == set(CONTESTANTS) for race in races)
    assert all(len(race.entries["geonpg"]) == 3 for race in races)


def test_its_speeds_are_those_of_the_page_on_speed() -> None:
    measured = (ROOT / "docs/speed.md").read_text()
    for row in rows(section(README, "Speed")):
        assert row[0] in measured
        for number in row[1:]:
            assert re.search(rf"^\w+ +{number}\b", measured, re.M)

"""`geonpg report` on studies whose answers are known."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path

import pytest
from html_pages import Element, read_page
from matplotlib.image import imread
from synthetic_studies import HIGH, LOW, write_group, write_run, write_study
from tiny_races import write_entry, write_races

from geonpg.scripts import report
from geonpg.scripts.branches.rows import BRANCH_RULES, Branch, write_rows
from geonpg.scripts.races.course import Entry
from geonpg.scripts.reports.curves import SETS
from geonpg.scripts.reports.page import table_html
from geonpg.scripts.reports.reading import read_study
from geonpg.scripts.reports.reporting import read_report
from geonpg.scripts.reports.sections import CAPTIONS
from geonpg.scripts.reports.tables import report_tables


@dataclass(frozen=True)
class Outcome:
    runs: Path
    out: Path
    code: int
    printed: str
    said: str

    @property
    def page(self) -> str:
        return (self.out / "report.html").read_text(encoding="utf-8")


def reported(runs: Path, out: Path, *flags: str) -> Outcome:
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as said:
        code = report.main([str(runs), "--out", str(out), *flags])
    return Outcome(runs, out, code, printed.getvalue(), said.getvalue())


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    base = tmp_path_factory.mktemp("report")
    return reported(write_study(base / "runs"), base / "new" / "out", "--json")


def test_ablations_alone(tmp_path: Path) -> None:
    """As `results/ablations.toml` leaves them: under labels only."""
    write_group(tmp_path / "Hopper-v4/whole/geo", HIGH, preset="default")
    write_group(tmp_path / "Hopper-v4/no-averaging/geo", LOW, preset="default")
    done = reported(tmp_path, tmp_path / "out")
    assert done.code == 0
    assert "no-averaging" in done.page


def test_branches_stand_beside_the_runs_once_every_rule_has_been_tried(tmp_path: Path) -> None:
    run = write_run(tmp_path / "Hopper-v4/default/geo/0", 500)
    for path in run.glob("*.csv"):  # one that has not ended, which has the fewest figures
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    (tmp_path / "branch/Hopper-v4").mkdir(parents=True)
    rows = [Branch(512, rule, 100.0 + (rule == "geo"), 0.1, 0.05, 1.1, 0.1, -0.01) for rule in BRANCH_RULES]
    for some, is_there in ((rows[:1], False), (rows, True)):
        write_rows(tmp_path / "branch/Hopper-v4/1000.csv", some)
        done = reported(tmp_path, tmp_path / "out", "--json")
        assert ("Paired branches" in done.page) == is_there
        assert ("too few checkpoints" in done.page) == is_there
        assert json.loads(done.printed).get("branch/Hopper-v4/geo/score") == (1 if is_there else None)
    assert fetched(read_page(done.page)) == []


def test_races_stand_beside_the_runs_and_alone(tmp_path: Path) -> None:
    write_races(tmp_path / "race")
    alone = reported(tmp_path, tmp_path / "out", "--json")
    assert alone.code == 0
    numbers = json.loads(alone.printed)
    assert numbers["race/HalfCheetah-v4/geonpg/5"] == 4100
    assert numbers["race/HalfCheetah-v4/geonpg/5/low"] < 4100 < numbers["race/HalfCheetah-v4/geonpg/5/high"]
    assert numbers["race/Hopper-v4/geonpg/minutes_to/3000"] == 2
    assert {path.name for path in (tmp_path / "out/figures").iterdir()} == {"race.png", "race.svg"}
    write_group(tmp_path / "study/Hopper-v4/default/geo", HIGH)
    both = reported(tmp_path, tmp_path / "out")
    assert both.said == "", "no entry is taken for a run"
    assert "## A race of 5 minutes" in both.printed
    page = read_page(both.page)
    headings = [e.text for e in page if e.tag in ("h2", "h3")]
    assert {"By the clock", "A race of 10 minutes", "Minutes to a return, in a race of 5 minutes"} < {*headings}
    assert headings.index("By the clock") > headings.index("Sample efficiency")
    assert fetched(page) == []


def test_json_is_flat_and_right(outcome: Outcome) -> None:
    numbers = json.loads(outcome.printed)
    assert outcome.code == 0
    assert numbers["final/Hopper-v4/default/geo"] == pytest.approx(2900)
    assert numbers["seeds/Hopper-v4/default/geo"] == 5
    assert numbers["seeds/Walker2d-v4/ppo/zoo"] == 3
    assert numbers["improvement/default/geo_over_ng"] == 1
    assert numbers["improvement/default/geo_over_ng/low"] == 1
    assert numbers["improvement/paper/geo_over_ng"] == 0
    mid = [numbers[f"improvement/default/mid_over_ng{end}"] for end in ("/low", "", "/high")]
    assert mid[0] < mid[1] == 0.5 < mid[2]
    assert all(isinstance(value, int | float) for value in numbers.values())


def test_races_that_cannot_be_read_leave_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_group(tmp_path / "study/Hopper-v4/default/geo", [1.0, 2.0])
    write_entry(tmp_path / "race", Entry("Hopper-v4", "ars", 0, 5.0), {5.0: 3.0})
    found = read_report(tmp_path)
    assert len(found.study.groups) == 1
    assert not found.raced
    assert "left out: all races: " in capsys.readouterr().err


def test_what_is_left_out_is_named(outcome: Outcome) -> None:
    assert "left out: Hopper-v4/default/geo/7 is incomplete: it has no times.csv\n" in outcome.said
    assert "left out: Hopper-v4/default/geo/8 is damaged: run.json is not JSON" in outcome.said
    assert "Hopper-v4/default/geo/7 is incomplete" in outcome.page
    assert outcome.said.count("\n") == 2


def test_leaves_a_page_and_figures_and_nothing_else(outcome: Outcome) -> None:
    measures = [f"{measure}-{where}" for measure in CAPTIONS for where in SETS]
    figures = {f"{name}.{kind}" for name in [*measures, "verdicts", "iqm"] for kind in ("svg", "png")}
    assert {path.name for path in (outcome.out / "figures").iterdir()} == figures
    assert {path.name for path in outcome.out.iterdir()} == {"report.html", "figures"}
    for path in (outcome.out / "figures").glob("*.png"):
        assert imread(path)[..., :3].std() > 0.03, f"{path.name} is blank"


def fetched(page: Element) -> list[str]:
    """Whatever is not inside the page."""
    names = ("src", "href", "xlink:href", "srcset", "data")
    links = [(e.tag, e.attributes[name]) for e in page for name in names if name in e.attributes]
    return [f"{tag} {link}" for tag, link in links if not link.startswith("#")]


def test_the_page_needs_nothing_else(outcome: Outcome) -> None:
    page = read_page(outcome.page)
    assert fetched(page) == []
    assert not {"script", "link", "iframe", "img"} & {e.tag for e in page}
    assert not re.search(r"url\((?!#)|@import", outcome.page)
    # training and evaluation, together and by task, and wall-clock; the other preset's on one task; two of intervals
    assert len(page.all("figure")) == (3 + 3 + 2) + (1 + 1 + 1) + 2
    assert len(page.all("table")) == len(report_tables(read_study(outcome.runs)))


def test_C16_without_a_folder_nothing_goes_into_results(
    outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it goes instead, git keeps nothing."""
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "results"
    write_run(runs / "Hopper-v4/default/geo/0", 1000)
    before = sorted(runs.rglob("*"))
    for arguments in (["results"], []):
        assert report.main([*arguments, "--json"]) == 0
        assert sorted(runs.rglob("*")) == before
        assert {path.name for path in (tmp_path / "runs/report").iterdir()} == {"report.html", "figures"}
        shutil.rmtree(tmp_path / "runs")
    assert "/runs/" in (Path(__file__).parents[2] / ".gitignore").read_text().splitlines()


def test_C16_the_commands_that_rebuild_our_results_name_them() -> None:
    root = Path(__file__).parents[2]
    text = "\n".join(path.read_text() for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))])
    for command in re.findall(r"geonpg report results[^`#\n]*", text):
        assert "--out results" in command


def test_every_table_is_on_the_page(outcome: Outcome) -> None:
    text = outcome.page
    for table in report_tables(read_study(outcome.runs)):
        assert table_html(table) in text


def test_the_same_data_give_the_same_bytes(tmp_path: Path) -> None:
    """A task without anchors, seeds that are too few, another algorithm: what cannot be said is not said."""
    write_group(tmp_path / "runs/CartPole-v1/ppo/default", [500.0, 400])
    first = reported(tmp_path / "runs", tmp_path / "first", "--json")
    again = reported(tmp_path / "runs", tmp_path / "again")
    files = sorted(path.relative_to(first.out) for path in first.out.rglob("*.*"))
    assert len(files) == 1 + 2 * 3
    assert [(again.out / file).read_bytes() == (first.out / file).read_bytes() for file in files] == [True] * len(files)
    one = "CartPole-v1/ppo/default"
    assert json.loads(first.printed) == {f"final/{one}": 450, f"seeds/{one}": 2, f"kept/{one}": 1}
    assert "CartPole-v1" in first.page
    for table in report_tables(read_study(tmp_path / "runs")):  # without --json, tables are printed
        assert table.markdown() in again.printed
    assert str(again.out / "report.html") in again.printed


def nothing(folder: Path) -> list[str]:
    return [str(folder)]


def no_folder(folder: Path) -> list[str]:
    return [str(folder / "nowhere")]


def no_room(folder: Path) -> list[str]:
    write_run(folder / "CartPole-v1/ppo/default/0", 500)
    (folder / "file").touch()
    return [str(folder), "--out", str(folder / "file" / "out")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(nothing, "holds no run with a curve"), (no_folder, "is no folder"), (no_room, "cannot write")],
)
def test_a_wrong_folder_is_one_sentence_and_exit_code_2(
    arguments: Callable[[Path], list[str]], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        report.main(arguments(tmp_path))
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert words in said
    assert said.count("\n") == 1


# A window cannot be as narrow as a phone, a frame can.
FRAME = """<!DOCTYPE html><title></title>
<iframe style="border: 0; width: {width}px; height: 800px" srcdoc="{page}"></iframe>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const page = frame.contentDocument;
  const all = name => [...page.querySelectorAll(name)].map(e => e.getBoundingClientRect());
  const ends = [...page.querySelectorAll(".scroll")].map(box => {{
    const heads = [...box.querySelectorAll("thead th")], visible = box.scrollWidth <= box.clientWidth;
    box.scrollLeft = box.scrollWidth;
    const [first, last, edge] = [heads[0], heads.at(-1), box].map(e => e.getBoundingClientRect());
    return {{visible, reached: last.left >= first.right - 1 && last.right <= edge.right + 1}};
  }});
  document.title = JSON.stringify({{width: page.documentElement.scrollWidth, ends,
    figures: all("figure svg").map(b => [b.width, b.height]), tables: all(".scroll").map(b => [b.left, b.right])}});
}};
</script>"""
CHROMIUM = (
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--dump-dom",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1300,900",
)  # fmt: skip


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_shows_it(outcome: Outcome, width: int, tmp_path: Path) -> None:
    """Nothing is wider than the screen; tables scroll in their own boxes; figures have a size that can be read."""
    framed = tmp_path / "framed.html"
    framed.write_text(FRAME.format(width=width, page=escape(outcome.page)), encoding="utf-8")
    command = [*CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", framed.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    title = re.search(r"<title>({.*?})</title>", shown)
    assert title is not None
    found = json.loads(title[1])
    assert found["width"] <= width
    assert len(found["figures"]) == outcome.page.count("<figure")
    assert all(w > 270 and h > 80 for w, h in found["figures"])
    assert all(left >= 0 and right <= width for left, right in found["tables"])
    assert all(end["reached"] for end in found["ends"])  # the last column, beside the first one that stays in sight
    assert width < 1200 or all(end["visible"] for end in found["ends"])

"""`geonpg report` on studies whose answers are known."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from html_pages import Element, read_page
from matplotlib.image import imread
from synthetic_studies import write_group, write_run

from geonpg.scripts import report
from geonpg.scripts.branches.trunk import RULES, Branch, write_rows
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.published import PAPER_LEVEL, PUBLISHED, RANDOM_LEVEL, TASKS, normalised
from geonpg.scripts.reports.figures import over_steps
from geonpg.scripts.reports.page import table_html
from geonpg.scripts.reports.sections import CAPTIONS, SETS
from geonpg.scripts.reports.study import read_study
from geonpg.scripts.reports.tables import tables

LOW, HIGH = [1000.0, 1100, 1200, 1300, 1400], [2700.0, 2800, 2900, 3000, 3100]
MIXED = [1000.0, 1150, 1200, 1250, 1400]


def write_study(folder: Path) -> Path:
    """On both tasks geo is better than ng, mid is not; on one of them an ablation is worse, and two runs are unfit."""
    for env_id in ("Hopper-v4", "Walker2d-v4"):
        write_group(folder / env_id / "default/ng", LOW)
        write_group(folder / env_id / "default/geo", HIGH)
        write_group(folder / env_id / "default/mid", MIXED)
        write_group(folder / env_id / "ppo/zoo", LOW[:3])
        write_group(folder / env_id / "paper/ng", HIGH)
        write_group(folder / env_id / "paper/geo", LOW)
    write_group(folder / "Hopper-v4/no-averaging/geo", LOW, steps=500_000, preset="default")
    (write_run(folder / "Hopper-v4/default/geo/7", 1.0) / "times.csv").unlink()
    (write_run(folder / "Hopper-v4/default/geo/8", 1.0) / "run.json").write_text("{")
    return folder


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


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    """Of the table of this name; where columns share a title the last counts."""
    (table,) = [table for table in tables(read_study(folder)) if table.name == name]
    return [dict(zip(table.columns, map(str, row), strict=True)) for row in table.rows]


def test_ablations_alone(tmp_path: Path) -> None:
    """As `results/ablations.toml` leaves them: under labels only."""
    write_group(tmp_path / "Hopper-v4/whole/geo", HIGH, preset="default")
    write_group(tmp_path / "Hopper-v4/no-averaging/geo", LOW, preset="default")
    write_group(tmp_path / "Hopper-v4/no-averaging/ng", LOW, preset="paper")  # of another whole
    outcome = reported(tmp_path, tmp_path / "out")
    assert outcome.code == 0
    assert "no-averaging" in outcome.page
    verdicts = {row["ablation"]: row["verdict"] for row in rows(tmp_path, "ablations")}
    assert verdicts == {"no-averaging/geo": "worse", "no-averaging/ng": "nothing to compare with"}


def test_branches_that_have_just_begun_wait(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/default/geo", HIGH)
    (tmp_path / "branch/Hopper-v4").mkdir(parents=True)
    write_rows(tmp_path / "branch/Hopper-v4/1000.csv", [Branch(1, "ng", 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)])
    outcome = reported(tmp_path, tmp_path / "out")
    assert outcome.code == 0
    assert "Paired branches" not in outcome.page


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


def test_verdicts(outcome: Outcome) -> None:
    found = {row["comparison"]: row["verdict"] for row in rows(outcome.runs, "verdicts")}
    assert found == {
        "default/geo over default/ng": "better",
        "default/mid over default/ng": "not significant",
        "paper/geo over paper/ng": "worse",
    }
    others = {row["comparison"]: row["verdict"] for row in rows(outcome.runs, "others")}
    assert set(others.values()) == {"too few seeds"}
    assert {name.rpartition(" ")[2] for name in others} == {"ppo/zoo"}
    tasks = {(row["task"], row["comparison"]): row for row in rows(outcome.runs, "differences")}
    geo = tasks["Walker2d-v4", "default/geo over default/ng"]
    assert (geo["verdict"], geo["difference"], geo["seeds"]) == ("better", "1700", "5")


def test_an_ablation_is_held_against_the_whole_after_as_many_steps(outcome: Outcome) -> None:
    (row,) = rows(outcome.runs, "ablations")
    whole = read_study(outcome.runs).main
    (geo,) = [group for name, group in whole.items() if str(name) == "Hopper-v4/default/geo"]
    assert (row["ablation"], row["of"], row["verdict"]) == ("no-averaging/geo", "default/geo", "worse")
    assert float(row["whole"]) == pytest.approx(geo.finals_at(500_000).mean(), abs=0.5)
    assert float(row["whole"]) < geo.finals.mean() - 100
    assert "no-averaging" not in json.dumps(rows(outcome.runs, "tasks"))


def test_where_the_whole_was_run_as_long_it_is_held_against_that(tmp_path: Path) -> None:
    """Annealed runs of different lengths do not compare on the way."""
    write_group(tmp_path / "Hopper-v4/default/geo", HIGH)
    write_group(tmp_path / "Hopper-v4/whole/geo", MIXED, steps=500_000, preset="default")
    write_group(tmp_path / "Hopper-v4/no-averaging/geo", LOW, steps=500_000, preset="default")
    (row,) = rows(tmp_path, "ablations")
    assert (row["ablation"], row["whole"]) == ("no-averaging/geo", "1200")


def test_branches_stand_beside_the_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "Hopper-v4/default/geo/0", 500)
    (tmp_path / "branch/Hopper-v4").mkdir(parents=True)
    one = [Branch(512, rule, 100.0 + (rule == "geo"), 0.1, 0.05, 1.1, 0.1, -0.01) for rule in RULES]
    write_rows(tmp_path / "branch/Hopper-v4/1000.csv", one)
    done = reported(tmp_path, tmp_path / "out", "--json")
    assert json.loads(done.printed)["branch/Hopper-v4/geo/score"] == 1
    assert "Paired branches" in done.page
    assert "too few checkpoints" in done.page
    assert fetched(read_page(done.page)) == []


def test_A9_what_runs_keep_to_the_end(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "Swimmer-v5/default/geo/0", 100)
    fallen = write_run(tmp_path / "Swimmer-v5/default/geo/1", 100) / "evaluations.csv"
    fallen.write_text(fallen.read_text().replace("1000000,100,", "1000000,10,"))
    assert folder.is_dir()
    (row,) = rows(tmp_path, "kept")
    assert row["each seed"].split(", ")[0] == "100%"
    best = 100 * (1 - 0.9 * math.exp(-4.5))
    share = (10 - RANDOM_LEVEL["Swimmer"]) / (best - RANDOM_LEVEL["Swimmer"])
    assert row["least"] == f"{share:.0%}"
    done = reported(tmp_path, tmp_path / "out", "--json")
    assert json.loads(done.printed)["kept/Swimmer-v5/default/geo"] == pytest.approx(share)


def test_steps_to_the_paper_s_level(outcome: Outcome) -> None:
    found = {(row["task"], row["method"]): row for row in rows(outcome.runs, "levels")}
    geo, ng = (found["Hopper-v4", f"default/{method}"] for method in ("geo", "ng"))
    level = PAPER_LEVEL["Hopper"]
    (group,) = [g for name, g in read_study(outcome.runs).main.items() if str(name) == "Hopper-v4/default/geo"]
    first = [min(x for x, y in zip(r.training.x, r.training.y, strict=True) if y >= level) for r in group.runs]
    assert geo["each seed"] == ", ".join(f"{x / 1e6:.2f} M" for x in first)
    assert geo["median"] == f"{np.median(first) / 1e6:.2f} M"
    assert (geo["seeds there"], ng["seeds there"], ng["median"]) == ("5 of 5", "0 of 5", "never")


def test_published_rows_stand_beside_ours(outcome: Outcome) -> None:
    found = rows(outcome.runs, "published")
    ours = [row for row in found if row["method"] == "default/geo"]
    assert [row["metric"] for row in ours] == ["FIN", "TRN"]
    assert ours[0]["Hopper"] == f"2900 ± {np.std(HIGH):.0f}"
    assert ours[0]["Reacher"] == ""
    theirs = [row for row in found if not row["source"].startswith("here")]
    assert [row["method"] for row in theirs] == [row.method for row in PUBLISHED]
    assert all(row["metric"] in ("TRN", "FIN", "MAX") for row in found)


def test_anchors_agree_with_each_other() -> None:
    assert all(len(row.returns) == len(TASKS) for row in PUBLISHED)
    assert [float(cell) for cell in PUBLISHED[0].returns] == list(PAPER_LEVEL.values())
    for task in TASKS:
        ends = np.array([RANDOM_LEVEL[task], PAPER_LEVEL[task]])
        assert normalised(f"{task}-v4", ends) == pytest.approx([0, 1])


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
    # two sets of kinds, each with training and evaluation, together and by task, and wall-clock; two of intervals
    assert len(page.all("figure")) == 2 * (3 + 3 + 2) + 2
    assert len(page.all("table")) == len(tables(read_study(outcome.runs)))


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
    for table in tables(read_study(outcome.runs)):
        assert table_html(table) in text


def test_only_what_was_run_on_every_task_is_shown_for_all_of_them(tmp_path: Path) -> None:
    for env_id in ("Hopper-v4", "Walker2d-v4"):
        write_group(tmp_path / env_id / "default/geo", HIGH)
    write_group(tmp_path / "Hopper-v4/default/ng", LOW)
    study = read_study(tmp_path)
    panels = over_steps(study, study.kinds, lambda run: run.training, with_level=True)
    shown = {panel.title: [line.kind.method for line in panel.lines] for panel in panels}
    assert shown == {"All tasks (IQM)": ["geo"], "Hopper-v4": ["geo", "ng"], "Walker2d-v4": ["geo"]}


def test_names_are_escaped() -> None:
    table = Table("n", "a<b", ("x&y",), [["<script>"]], "1 < 2")
    assert "<script>" not in table_html(table)
    assert "&lt;script&gt;" in table_html(table)


def test_the_same_data_give_the_same_bytes(outcome: Outcome, tmp_path: Path) -> None:
    again = reported(outcome.runs, tmp_path)
    files = sorted(path.relative_to(outcome.out) for path in outcome.out.rglob("*.*"))
    assert len(files) > 10
    assert [(tmp_path / file).read_bytes() == (outcome.out / file).read_bytes() for file in files] == [True] * len(
        files
    )
    for table in tables(read_study(outcome.runs)):  # without --json, tables are printed
        assert table.markdown() in again.printed
    assert str(tmp_path / "report.html") in again.printed


def test_one_task_of_another_kind(tmp_path: Path) -> None:
    """No anchors, one seed, other algorithms only: what cannot be said is not said."""
    write_run(tmp_path / "CartPole-v1/ppo/default/0", 500)
    done = reported(tmp_path, tmp_path / "out", "--json")
    one = "CartPole-v1/ppo/default"
    assert json.loads(done.printed) == {f"final/{one}": 500, f"seeds/{one}": 1, f"kept/{one}": 1}
    assert "CartPole-v1" in done.page


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

"""The page of `geonpg report`: what stands where, by the structure of its HTML."""

import re
from pathlib import Path

import pytest
from html_pages import Element, read_page
from synthetic_studies import write_group, write_run
from tiny_maps import write_grid, write_synthetic

from geonpg.scripts.branches.rows import BRANCH_RULES, Branch, write_rows
from geonpg.scripts.reports.page import CSS
from geonpg.scripts.reports.reporting import read_report

LOW, HIGH = [1000.0, 1100, 1200, 1300, 1400], [2700.0, 2800, 2900, 3000, 3100]
EXPONENT = re.compile(r"\d[eE][-+]?\d")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Element:
    """Two tasks, two methods, an ablation, a run that has not ended, and branches with small and large numbers."""
    folder = tmp_path_factory.mktemp("study")
    for env_id in ("Hopper-v4", "Walker2d-v4"):
        write_group(folder / env_id / "default/ng", LOW)
        write_group(folder / env_id / "default/geo", HIGH)
        (folder / "branch" / env_id).mkdir(parents=True)
        rows = [
            Branch(512 * k, rule, 4370.2 + 10 * i + k, 6e-6 * i, 5e-5, 1.1, 0.1, -0.01)
            for k in range(3)
            for i, rule in enumerate(BRANCH_RULES)
        ]
        write_rows(folder / "branch" / env_id / "1000.csv", rows)
    write_group(folder / "Hopper-v4/no-averaging/geo", LOW, preset="default")
    unfinished(write_run(folder / "Hopper-v4/default/geo/7", 2000))
    return read_page(read_report(folder).page())


def unfinished(run: Path) -> Path:
    """The run, after less than half of its steps."""
    for path in run.glob("*.csv"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    return run


def outline(page: Element) -> list[str]:
    """Headings, figures, tables and what folds, in the order of the page."""
    marks = {"h2": lambda e: f"# {e.text}", "figure": lambda _: "figure", "table": lambda _: "table"}
    return [marks[e.tag](e) for e in page if e.tag in marks]


def test_D_contents_lead_to_every_section(page: Element) -> None:
    (contents,) = page.all("nav")
    links = [(link.attributes["href"], link.text) for link in contents.all("a")]
    assert links == [(f"#{heading.attributes['id']}", heading.text) for heading in page.all("h2")]
    assert len({href for href, _ in links}) == len(links) > 8
    first = [e.tag for e in page if e.tag in ("h1", "ul", "nav", "h2")][:4]
    assert first == ["h1", "ul", "nav", "h2"]


def test_D_a_summary_of_three_lines_stands_at_the_top(page: Element) -> None:
    (summary,) = page.all("ul", "summary")
    runs, results, geometry = (line.text for line in summary.all("li"))
    assert "20 finished runs: 2 methods on 2 tasks, 5 seeds each, 1.00 M steps" in runs
    assert "5 ablation runs" in runs
    assert "1 unfinished run," in runs
    better_first = r"Results: normalised score default/geo 1\.\d+ \(.*\), default/ng 0\.\d+ \("
    assert re.match(better_first, results)
    assert "default/geo beats ng with probability 1.00 (1.00 to 1.00), better;" in geometry
    assert re.search(r"from the same checkpoints geo changes the normalised return by 0\.\d+ \(.*\), too few", geometry)


def test_D_curves_come_before_tables(page: Element) -> None:
    marks = outline(page)
    assert marks[:2] == ["# Sample efficiency", "figure"]
    assert marks.index("table") > marks.index("# Wall-clock") + 1
    assert marks.index("# Does geometry help?") < marks.index("table")


def test_D_branch_tables_are_folded_and_no_others(page: Element) -> None:
    folds = page.all("details")
    assert all("open" not in fold.attributes for fold in folds)
    assert [len(fold.all("table")) for fold in folds] == [1] * 6
    titles = [fold.all("summary")[0].text for fold in folds]
    assert titles[0].startswith("Means over checkpoints")
    assert all(title.startswith("Difference to ng: ") for title in titles[1:])
    inside = {id(table) for fold in folds for table in fold.all("table")}
    outside = [table.rows()[0] for table in page.all("table") if id(table) not in inside]
    assert not [head for head in outside if "rule" in head]


def test_D_does_geometry_help_is_asked_once(page: Element) -> None:
    headings = [e.text for e in page if e.tag in ("h1", "h2", "h3")]
    assert [text for text in headings if "geometry" in text] == ["Does geometry help?"]
    assert {"Paired branches", "Whole runs"} < set(headings)


def test_D_one_format_of_numbers_everywhere(page: Element) -> None:
    cells = [cell for table in page.all("table") for row in table.rows() for cell in row]
    assert not [cell for cell in cells if EXPONENT.search(cell)]
    (means,) = [table.rows() for table in page.all("table") if "first surrogate" in table.rows()[0]]
    by_column = dict(zip(means[0], means[1], strict=True))
    assert (by_column["return"], by_column["first surrogate"]) == ("4371", "0.000050")
    (differences,) = [
        table.rows() for table in page.all("table") if table.rows()[0][:3] == ["task", "verdict", "comparison"]
    ]
    assert [row[3] for row in differences[1:]] == ["1700", "1700"]


def test_D_verdicts_stand_next_to_what_they_are_about(page: Element) -> None:
    """On a phone the columns on the right have to be scrolled to; a verdict has not."""
    heads = [table.rows()[0] for table in page.all("table")]
    places = [head.index("verdict") for head in heads if "verdict" in head]
    assert len(places) == 8
    assert max(places) <= 2


def test_D_every_table_scrolls_in_its_own_box(page: Element) -> None:
    boxes = page.all("div", "scroll")
    assert [len(box.all("table")) for box in boxes] == [1] * len(page.all("table"))
    assert all(box.attributes["tabindex"] == "0" for box in boxes)  # by the keyboard too
    assert re.search(r"\.scroll \{[^}]*overflow-x: auto", CSS)
    long = [e for e in page.all("th") if e.text == "InvertedDoublePendulum"]
    assert all(len(e.all("wbr")) == 2 for e in long)
    assert long


def test_D_nothing_is_painted_white_or_left_black(page: Element) -> None:
    """Panels show the page behind them; what has no colour would be black, if the page did not say otherwise."""
    assert re.search(r"figure svg \{[^}]*fill: currentColor", CSS)
    for figure in page.all("figure"):
        styles = " ".join(f"{e.attributes.get('style', '')} {e.attributes.get('fill', '')}" for e in figure)
        assert "#ffffff" not in styles
        assert "#000000" not in styles


def test_D_says_how_many_episodes_evaluations_have(page: Element) -> None:
    notes = [note.text for note in page.all("p", "note")]
    told = [note for note in notes if "A run's last evaluation has 20 deterministic episodes, the others 10." in note]
    assert len(told) == 3  # at the curves and at the tables of evaluations


def test_D_captions_tell_what_is_drawn(page: Element) -> None:
    training, evaluation, clock, *_ = (note.text for note in page.all("p", "note"))
    assert all("Dotted: the paper's ACKTR" in note for note in (training, evaluation, clock))
    assert ["Crosses" in note for note in (training, evaluation, clock)] == [True, False, False]
    assert ["All tasks" in note for note in (training, evaluation, clock)] == [True, True, False]


def test_D_runs_that_have_not_ended_are_drawn_and_in_no_table(page: Element) -> None:
    keys = {key.text for key in page.all("ul", "key")}
    assert keys == {"default/geo (5 seeds, 1 unfinished)default/ng (5 seeds)"}
    assert [note.text for note in page.all("p", "note") if "Thin lines" in note.text]
    seeds = [row[-1] for table in page.all("table") if table.rows()[0][-1] == "seeds" for row in table.rows()[1:]]
    assert set(seeds) == {"5"}


def test_a_map_of_long_steps_has_a_section_of_its_own(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/default/geo", HIGH)
    write_grid(tmp_path).rename(tmp_path / "large")
    write_synthetic(tmp_path / "large", "Reacher-v4", 3000, {"pcg/geo": 1.25, "kfac/ng": 1.0}, 2)
    report = read_report(tmp_path)
    marks = outline(read_page(report.page()))
    first = marks.index("# Long steps")
    assert marks[first + 1 : first + 3] == ["figure", "table"]
    assert report.numbers()["large/all/256/0.1/geo_over_ng"] == pytest.approx(1.25)
    assert "Held-out gain: the best geo over the best ng" in report.markdown()

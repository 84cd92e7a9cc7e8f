"""What stands on the page of `geonpg report`: curves, verdicts, tables, what is left out, how it is computed."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from geonpg.scripts.branches.analysis import BranchStudy, branch_tables
from geonpg.scripts.branches.figures import branch_figure
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.maps.analysis import NO_MAP, MapStudy, map_tables
from geonpg.scripts.maps.figures import map_figure
from geonpg.scripts.races.analysis import NO_RACES, RaceStudy, race_tables
from geonpg.scripts.races.figures import race_figure
from geonpg.scripts.reports import headline, page
from geonpg.scripts.reports.curves import ALL_TASKS, SETS, CurveFigure
from geonpg.scripts.reports.figures import legend_labels, single, styles
from geonpg.scripts.reports.page import Section
from geonpg.scripts.reports.paper import NOTE, paper_figure, paper_tables, tasks_of
from geonpg.scripts.reports.study import NO_RUNS, Study
from geonpg.scripts.reports.tables import GEOMETRY
from geonpg.scripts.reports.words import BRANCHES, COMPUTED, LONG_STEPS, RACES, episodes_text

CAPTIONS = {
    "training": ("Sample efficiency", "Return of training episodes, mean over seeds with its 95 % interval."),
    "evaluation": (
        "Deterministic evaluations",
        "Return of deterministic episodes, mean over seeds with its 95 % interval.",
    ),
    "clock": (
        "Wall-clock",
        "Return of training episodes over wall-clock minutes, including evaluations, on the machine that ran them.",
    ),
}


def sections(
    study: Study,
    tables: Sequence[Table],
    aggregates: Mapping[str, Figure],
    curves: Sequence[CurveFigure],
    branched: BranchStudy,
    mapped: MapStudy = NO_MAP,
    raced: RaceStudy = NO_RACES,
    paper: Study = NO_RUNS,
) -> list[Section]:
    """All sections in the order of the page; `aggregates` are figures by the name of the table that they belong to."""
    several = len({each.which for each in curves}) > 1
    found = [curve_section(study, each, several) for each in curves]
    found += [Section("By the clock", [*headline_parts(study, raced), *race_parts(raced)])] if raced else []
    geometry = branch_parts(branched) if branched else []
    for table in tables:
        if table.title == GEOMETRY:
            geometry += [page.subheading("Whole runs"), *table_parts(table, aggregates)]
    found += [Section(GEOMETRY, geometry)] if geometry else []
    found += [Section("The paper's figure", paper_parts(paper))] if tasks_of(paper) else []
    found += [Section("Long steps", map_parts(mapped))] if mapped else []
    found += [Section(table.title, table_parts(table, aggregates)) for table in tables if table.title != GEOMETRY]
    if study.left_out:
        found.append(Section("Left out of the tables", [page.items(study.left_out)]))
    return [*found, Section("How it is computed", [page.items(COMPUTED)])]


def branch_parts(branched: BranchStudy) -> list[str]:
    """The paired experiment: its figure, and its tables folded."""
    figure = page.figure_html(branch_figure(branched), "Paired differences to ng", wide=True)
    folded = [page.folded(table.title, page.table_html(table)) for table in branch_tables(branched)]
    return [page.subheading("Paired branches"), page.paragraph(BRANCHES, "note"), figure, *folded]


def paper_parts(paper: Study) -> list[str]:
    """The paper's figure as our runs draw it, and its tables."""
    figure = page.figure_html(paper_figure(paper), "Training returns with the paper's settings", wide=True)
    return [page.paragraph(NOTE, "note"), figure, *map(page.table_html, paper_tables(paper))]


def map_parts(mapped: MapStudy) -> list[str]:
    """The map of long steps: its figure and verdicts, and its other tables folded."""
    first, *others = map_tables(mapped)
    figure = page.figure_html(map_figure(mapped), "Held-out gain by batch and size of step", wide=True)
    folded = [page.folded(table.title, page.table_html(table)) for table in others]
    return [page.paragraph(LONG_STEPS, "note"), figure, page.table_html(first), *folded]


def headline_parts(study: Study, raced: RaceStudy) -> list[str]:
    """Ours against PPO, where the study and the races have both."""
    figure = headline.headline_figure(study, raced)
    shown = "Return over steps and over minutes, ours and PPO"
    return [page.paragraph(headline.NOTE, "note"), page.figure_html(figure, shown, wide=True)] if figure else []


def race_parts(raced: RaceStudy) -> list[str]:
    """The races: their figure, and a table of returns and one of minutes for every length."""
    figure = page.figure_html(race_figure(raced), "Return over minutes of training", wide=True)
    tables = [part for table in race_tables(raced) for part in (page.subheading(table.title), page.table_html(table))]
    return [page.paragraph(RACES, "note"), figure, *tables]


def table_parts(table: Table, aggregates: Mapping[str, Figure]) -> list[str]:
    """A table under its figure, if it has one."""
    figure = [page.figure_html(aggregates[table.name], table.title)] if table.name in aggregates else []
    return [*figure, page.table_html(table)]


def curve_section(study: Study, curves: CurveFigure, several: bool) -> Section:
    """The panels of one measure under a legend; the title says of which contenders, if there are several sets."""
    title, _ = CAPTIONS[curves.measure]
    style, labels = styles(study), legend_labels(study, curves.contenders)
    singles = {f"{title}, {panel.title}": single(panel, style) for panel in curves.panels}
    parts = [page.paragraph(caption(study, curves), "note"), page.key_html(labels, style), page.figures_html(singles)]
    return Section(f"{title}: {SETS[curves.which]}" if several else title, parts)


def caption(study: Study, curves: CurveFigure) -> str:
    """What the curves are, and what else is drawn beside them."""
    sentences = {
        CAPTIONS[curves.measure][1]: True,
        episodes_text(study.shown): curves.measure == "evaluation",
        "All tasks: interquartile mean of normalised returns.": any(p.title == ALL_TASKS for p in curves.panels),
        "Dotted: the paper's ACKTR at 1 M steps.": curves.has_level,
        "Crosses: the paper's ACKTR before that.": curves.has_paper,
        "Thin lines: unfinished runs.": curves.has_singles,
    }
    return " ".join(sentence for sentence, is_due in sentences.items() if is_due)

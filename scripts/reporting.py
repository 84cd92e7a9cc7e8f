"""What `geonpg report` makes: tables, verdicts and figures of a folder of runs, and the page that holds them."""

import json
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from geonpg.kfac.choice import require
from geonpg.scripts import branch_analysis as branches
from geonpg.scripts import report_figures as figures
from geonpg.scripts import report_page as html
from geonpg.scripts.artifacts import Table, replacing, write_text
from geonpg.scripts.comparisons import over_baseline
from geonpg.scripts.intervals import COUNT, FEWEST_SEEDS
from geonpg.scripts.report_figures import Panel
from geonpg.scripts.report_tables import tables
from geonpg.scripts.study import Kind, Study, read_study

TITLE = "geonpg: sample efficiency"
VERDICTS = ("verdicts", "others", "differences", "iqm")  # tables that come before the curves
METHOD = (
    "Intervals over several tasks, and the bands of curves, are 95 % percentile intervals of the stratified bootstrap, "
    f"{COUNT} resamples: runs are drawn anew within each task and method. On one task they are Student's for means and "
    "Welch's for differences, since of five runs the bootstrap's are too narrow. "
    f"Below {FEWEST_SEEDS} seeds there is no verdict.",
    "Verdicts: over several tasks, whether the interval of the probability of improvement leaves out 0.5 (of six tasks "
    "and five seeds without a difference 5 % get a verdict, of two tasks 7 %); on one task, whether that of the "
    "difference of means leaves out 0. Nothing is corrected for the number of comparisons.",
    "Runs that have not ended are left out. A run's last evaluation counts, not its best.",
)
BRANCHES = (
    "Branches: from the same checkpoint every rule makes ten updates with the same random numbers, and is held against "
    "ng there. This is the primary test of whether geometry helps; its analysis was fixed beforehand (docs/branch.md)."
)
SETS = {"main": "the main preset and other algorithms", "presets": "other presets"}
CAPTIONS = {
    "training": (
        "Sample efficiency",
        "Return of training episodes, mean over seeds with its 95 % interval. Dotted: the paper's ACKTR at 1 M steps; "
        "crosses: on the way there. All tasks: interquartile mean of normalised returns.",
    ),
    "evaluation": ("Deterministic evaluations", "Mean over seeds of deterministic episodes, with its 95 % interval."),
    "clock": ("Wall-clock", "The training returns over minutes, evaluations included, on the machine that ran them."),
}


@dataclass(frozen=True)
class Curves:
    """The panels of one measure for the kinds that share a figure."""

    measure: str
    where: str
    kinds: Sequence[Kind]
    panels: Sequence[Panel]


def curves(study: Study) -> list[Curves]:
    found = []
    for where, kinds in figures.sets(study).items():
        measures = {
            "training": figures.over_steps(study, kinds, lambda run: run.training, with_level=True),
            "evaluation": figures.over_steps(study, kinds, lambda run: run.evaluation, with_level=False),
            "clock": figures.over_time(study, kinds),
        }
        found += [Curves(measure, where, kinds, panels) for measure, panels in measures.items() if panels]
    return found


def aggregates(study: Study) -> dict[str, Figure]:
    """By the table that each belongs to."""
    found = {"verdicts": figures.improvement_figure(study, over_baseline(study)), "iqm": figures.iqm_figure(study)}
    return {name: figure for name, figure in found.items() if figure}


def numbers(study: Study) -> dict[str, float]:
    """One flat object for programs."""
    found: dict[str, float] = {}
    for name, group in study.groups.items():
        found |= {f"final/{name}": float(group.finals.mean()), f"seeds/{name}": group.seeds}
    for each in over_baseline(study):
        estimate, key = each.improvement(), f"improvement/{each.kind}_over_{each.other.method}"
        found |= {key: float(estimate.value), f"{key}/low": float(estimate.low), f"{key}/high": float(estimate.high)}
    return found


def summary(study: Study) -> str:
    runs = sum(group.seeds for group in study.groups.values())
    text = f"{runs} finished runs of {len(study.kinds)} methods on {len(study.env_ids)} tasks"
    return f"{text}; {len(study.left_out)} left out, see below." if study.left_out else f"{text}."


def branch_parts(study: branches.Study) -> list[str]:
    parts = [html.heading("Does geometry help? Paired branches"), html.paragraph(BRANCHES, "note")]
    parts.append(html.figure_html(branches.figure(study), "Paired differences to ng", wide=True))
    for table in branches.tables(study):
        parts += [html.subheading(table.title), html.table_html(table)]
    return parts


def page(
    study: Study,
    found: Sequence[Table],
    drawn: Mapping[str, Figure],
    many: Sequence[Curves],
    branched: branches.Study,
) -> str:
    """Verdicts, curves, the other tables, what is left out, how it is computed."""
    paired = branch_parts(branched) if branched else []
    first = [part for table in found if table.name in VERDICTS for part in table_parts(table, drawn)]
    rest = [part for table in found if table.name not in VERDICTS for part in table_parts(table, drawn)]
    shown = [part for each in many for part in curve_parts(study, each)]
    left_out = [html.heading("Left out"), html.items(study.left_out)] if study.left_out else []
    last = [html.heading("How it is computed"), html.items(METHOD)]
    return html.page(TITLE, [html.paragraph(summary(study)), *paired, *first, *shown, *rest, *left_out, *last])


def table_parts(table: Table, drawn: Mapping[str, Figure]) -> list[str]:
    figure = [html.figure_html(drawn[table.name], table.title)] if table.name in drawn else []
    return [html.heading(table.title), *figure, html.table_html(table)]


def curve_parts(study: Study, many: Curves) -> list[str]:
    title, caption = CAPTIONS[many.measure]
    style, labels = figures.styles(study), figures.legend_labels(study, many.kinds)
    singles = {f"{title}, {panel.title}": figures.single(panel, style) for panel in many.panels}
    head = [html.heading(f"{title}: {SETS[many.where]}"), html.paragraph(caption, "note")]
    return [*head, html.key_html(labels, style), html.figures_html(singles)]


def write(study: Study, found: Sequence[Table], branched: branches.Study, out: Path) -> list[Path]:
    """The page and its figures; returns what was written."""
    (out / "figures").mkdir(parents=True, exist_ok=True)
    drawn, many, style = aggregates(study), curves(study), figures.styles(study)
    written = [out / "report.html"]
    write_text(written[0], page(study, found, drawn, many, branched))
    together = {
        f"{c.measure}-{c.where}": figures.combined(c.panels, style, figures.legend_labels(study, c.kinds)) for c in many
    }
    for name, figure in {**drawn, **together}.items():
        for kind in ("svg", "png"):
            written.append(out / "figures" / f"{name}.{kind}")
            with replacing(written[-1]) as temporary:
                temporary.write_bytes(figures.encoded(figure, kind))
    return written


def report(arguments: Namespace) -> None:
    """Write the page and its figures, and print the tables."""
    study = read_study(arguments.folder)
    for sentence in study.left_out:
        print(f"left out: {sentence}", file=sys.stderr)
    require(bool(study.groups), f"{arguments.folder} holds no finished run at <task>/<preset>/<method>/<seed>/")
    found, branched = tables(study), branches.read_study(arguments.folder / "branch")
    written = write(study, found, branched, arguments.out or arguments.folder)
    if arguments.json:
        print(json.dumps(numbers(study) | branches.flat(branched)))
    else:
        print("\n\n".join(table.markdown() for table in [*found, *(branches.tables(branched) if branched else ())]))
        print("\nwritten:", *(f"  {path}" for path in written), sep="\n")

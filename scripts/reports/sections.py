"""What stands on the page of `geonpg report`: a summary, curves, tables, what is left out, how it is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from geonpg.scripts.branches import analysis as branches
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.intervals import COUNT, FEWEST_SEEDS, Estimate, student
from geonpg.scripts.reports import figures
from geonpg.scripts.reports import page as html
from geonpg.scripts.reports.comparisons import BASELINE, iqm, over_baseline, scored
from geonpg.scripts.reports.figures import ALL_TASKS, Panel
from geonpg.scripts.reports.page import Section
from geonpg.scripts.reports.run_files import Kind
from geonpg.scripts.reports.study import Study
from geonpg.scripts.reports.tables import GEOMETRY, UNKNOWN, counted, episodes_text, estimated, steps_text

MOST = 4  # results in a line of the summary
METHOD = (
    "Intervals over several tasks, and the bands of curves, are 95 % percentile intervals of the stratified bootstrap, "
    f"{COUNT} resamples: runs are drawn anew within each task and method. On one task they are Student's for means and "
    "Welch's for differences, since of five runs the bootstrap's are too narrow. "
    f"Below {FEWEST_SEEDS} seeds there is no verdict.",
    "Verdicts: over several tasks, whether the interval of the probability of improvement leaves out 0.5 (of six tasks "
    "and five seeds without a difference 5 % get a verdict, of two tasks 7 %); on one task, whether that of the "
    "difference of means leaves out 0. Nothing is corrected for the number of comparisons.",
    "Runs that have not ended are in no table. A run's last evaluation counts, not its best.",
)
BRANCHES = (
    "From the same checkpoint every rule makes ten updates with the same random numbers, and is held against ng there. "
    "This is the primary test of whether geometry helps; its analysis was fixed beforehand (docs/branch.md)."
)
SETS = {"main": "the main preset and other algorithms", "presets": "other presets"}
CAPTIONS = {
    "training": ("Sample efficiency", "Return of training episodes, mean over seeds with its 95 % interval."),
    "evaluation": ("Deterministic evaluations", "Mean over seeds with its 95 % interval."),
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


def with_interval(estimate: Estimate) -> str:
    value, interval = estimated(estimate)
    return value if interval == UNKNOWN else f"{value} ({interval})"


def summary(study: Study, branched: branches.Study) -> dict[str, str]:
    """What was run, what it reached, and whether geometry helped: a line each."""
    return {"Runs": runs_line(study), "Reached": level_line(study), "Geometry": geometry_line(study, branched)}


def runs_line(study: Study) -> str:
    groups = list(study.main.values())
    sentences = ["No run has ended yet."]
    if groups:
        kinds, tasks = ({getattr(group.name, part) for group in groups} for part in ("kind", "env_id"))
        runs, steps = sum(group.seeds for group in groups), sorted({group.budget for group in groups})
        made = f"{counted('finished run', runs)}: {counted('method', len(kinds))} on {counted('task', len(tasks))}"
        seeds = counted("seed", *(group.seeds for group in groups))
        sentences = [
            f"{made}, {seeds} each, {' to '.join(map(steps_text, (steps[0], steps[-1])[: len(steps)]))} steps."
        ]
    if ablations := sum(group.seeds for name, group in study.groups.items() if name not in study.main):
        sentences.append(f"{counted('run', ablations)} of ablations.")
    if study.unfinished:
        sentences.append(f"{counted('run', len(study.unfinished))} on the way, in thin lines.")
    if others := len(study.left_out) - len(study.unfinished):
        sentences.append(f"{counted('run', others)} left out, see below.")
    return " ".join(sentences)


def level_line(study: Study) -> str:
    """Of several tasks together, on the paper's scale; otherwise the best of each task."""
    levels = {
        kind: iqm(groups, [group.finals for group in groups], COUNT)
        for kind in study.kinds
        if len(groups := scored(study, kind)) > 1
    }
    if levels:
        best = sorted(levels, key=lambda kind: -float(levels[kind].value))[:MOST]
        shown = ", ".join(f"{kind} {with_interval(levels[kind])}" for kind in best)
        return f"{shown}; 1 is the paper's ACKTR at 1 M steps, 0 a random policy."
    found = []
    for env_id in study.env_ids[:MOST]:
        if groups := [group for name, group in study.main.items() if name.env_id == env_id]:
            group = max(groups, key=lambda group: float(group.finals.mean()))
            found.append(f"{group.name.kind} {with_interval(student(group.finals))} on {env_id}")
    return f"{', '.join(found)} (last evaluation)." if found else "The curves show how far the runs have come."


def geometry_line(study: Study, branched: branches.Study) -> str:
    found = [
        f"{each.kind} over {BASELINE}: {each.verdict()}, probability {with_interval(each.improvement())}"
        for each in over_baseline(study)[:MOST]
    ]
    if branched:
        place, rule = branches.places(branched)[0], "geo"
        measure, checkpoints = branches.MEASURES[branches.PRIMARY], min(len(rules[rule]) for rules in branched.values())
        estimate = branches.estimate(branched, rule, branches.PRIMARY, place)
        word = branches.verdict(estimate, measure.better, checkpoints)
        found.append(f"{rule} in branches: {word}, return {with_interval(estimate)}")
    return f"{'; '.join(found)}." if found else f"no verdict without {FEWEST_SEEDS} seeds of ng and of another method."


def sections(
    study: Study,
    tables: Sequence[Table],
    drawn: Mapping[str, Figure],
    many: Sequence[Curves],
    branched: branches.Study,
) -> list[Section]:
    """Curves, verdicts, the other tables, what is left out, how it is computed."""
    found = [curve_section(study, each, len({c.where for c in many}) > 1) for each in many]
    geometry = branch_parts(branched) if branched else []
    for table in tables:
        if table.title == GEOMETRY:
            geometry += [html.subheading("Whole runs"), *table_parts(table, drawn)]
    found += [Section(GEOMETRY, geometry)] if geometry else []
    found += [Section(table.title, table_parts(table, drawn)) for table in tables if table.title != GEOMETRY]
    if study.left_out:
        found.append(Section("Left out of the tables", [html.items(study.left_out)]))
    return [*found, Section("How it is computed", [html.items(METHOD)])]


def branch_parts(branched: branches.Study) -> list[str]:
    figure = html.figure_html(branches.figure(branched), "Paired differences to ng", wide=True)
    shown = [html.folded(table.title, html.table_html(table)) for table in branches.tables(branched)]
    return [html.subheading("Paired branches"), html.paragraph(BRANCHES, "note"), figure, *shown]


def table_parts(table: Table, drawn: Mapping[str, Figure]) -> list[str]:
    figure = [html.figure_html(drawn[table.name], table.title)] if table.name in drawn else []
    return [*figure, html.table_html(table)]


def curve_section(study: Study, many: Curves, several: bool) -> Section:
    title, _ = CAPTIONS[many.measure]
    style, labels = figures.styles(study), figures.legend_labels(study, many.kinds)
    singles = {f"{title}, {panel.title}": figures.single(panel, style) for panel in many.panels}
    parts = [html.paragraph(caption(study, many), "note"), html.key_html(labels, style), html.figures_html(singles)]
    return Section(f"{title}: {SETS[many.where]}" if several else title, parts)


def caption(study: Study, many: Curves) -> str:
    """What the curves are, and what else is drawn beside them."""
    sentences = {
        CAPTIONS[many.measure][1]: True,
        episodes_text(study.shown): many.measure == "evaluation",
        "All tasks: interquartile mean of normalised returns.": any(p.title == ALL_TASKS for p in many.panels),
        "Dotted: the paper's ACKTR at 1 M steps.": any(p.level is not None for p in many.panels),
        "Crosses: on the way there.": any(p.paper for p in many.panels),
        "Thin lines: runs that have not ended.": any(line.is_single for p in many.panels for line in p.lines),
    }
    return " ".join(sentence for sentence, is_due in sentences.items() if is_due)

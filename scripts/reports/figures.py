"""The figures of `geonpg report`: curves with bands over seeds, one panel per task, and intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from geonpg.scripts.common.intervals import COUNT, Estimate, bootstrap, mean
from geonpg.scripts.common.published import PAPER_CURVE, PAPER_LEVEL, PAPER_STEPS, is_anchored, task_of
from geonpg.scripts.common.style import METHOD_STYLE, plain
from geonpg.scripts.reports.comparisons import MAIN_PRESET, Comparison, iqm, scored
from geonpg.scripts.reports.run_files import VARIANT, Curve, Kind, Run
from geonpg.scripts.reports.study import Group, Study
from geonpg.scripts.reports.tables import counted

Array = NDArray[np.float64]
LineStyle = Literal["-", "--", ":", "-."]
T = TypeVar("T")

POINTS = 50  # along a curve
RESAMPLES = 2_000  # of each of them
OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#999999")  # what Okabe and Ito leave beside the methods
GREY = "#888888"
LINES: tuple[LineStyle, ...] = ("-", "--", ":", "-.")
PANEL = (4.4, 3.3)  # inches
STEPS = {1e6: "million steps", 1e3: "thousand steps"}  # on an axis
ALL_TASKS = "All tasks (IQM)"
SHORT = 1e5  # steps; shorter runs are shown in thousands, without what the paper reached in a million


@dataclass(frozen=True)
class Style:
    color: str
    line: LineStyle


@dataclass(frozen=True)
class Line:
    kind: Kind
    x: Array
    estimate: Estimate  # along x
    is_single: bool = False  # one run, which has not ended


@dataclass(frozen=True)
class Panel:
    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    level: float | None = None  # the paper's
    paper: Sequence[float] = ()  # the paper's curve at PAPER_STEPS
    unit: float = 1.0  # of the lines' x on the axis


def styles(study: Study) -> dict[Kind, Style]:
    """Ours: colour by method, line by preset. Others: colour by algorithm, line by settings."""
    presets = sorted(study.our_presets, key=lambda preset: preset != MAIN_PRESET)
    found: dict[Kind, Style] = {}
    for kind in study.kinds:
        if kind.preset in presets:
            colour = METHOD_STYLE.get(kind.method, {"color": GREY})["color"]
            found[kind] = Style(str(colour), pick(LINES, presets.index(kind.preset)))
    others = study.other_kinds
    algorithms = list(dict.fromkeys(kind.preset for kind in others))
    for kind in others:
        settings = [other for other in others if other.preset == kind.preset]
        colour = pick(OTHER_COLOURS, algorithms.index(kind.preset))
        found[kind] = Style(colour, pick(LINES, settings.index(kind)))
    return found


def pick(choices: Sequence[T], i: int) -> T:
    return choices[i % len(choices)]


def sets(study: Study) -> dict[str, list[Kind]]:
    """Which kinds share a figure: the main preset and other algorithms; our other presets."""
    ours = [kind for kind in study.kinds if kind.preset in study.our_presets]
    main = [kind for kind in ours if kind.preset.split(VARIANT)[0] == MAIN_PRESET]
    found = {"main": main + study.other_kinds, "presets": [kind for kind in ours if kind not in main]}
    return {name: kinds for name, kinds in found.items() if kinds}


def sampled(curves: Sequence[Curve], end: float) -> tuple[Array, Array]:
    """A grid up to `end` and all curves on it, [n] and [curves, n]."""
    grid = np.linspace(end / POINTS, end, POINTS)
    return grid, np.stack([curve.at(grid) for curve in curves])


def band(curves: Sequence[Curve], end: float) -> tuple[Array, Estimate]:
    """The mean over seeds, from where every seed has one."""
    grid, values = sampled(curves, end)
    known = np.isfinite(values).all(axis=0)
    if not known.any():  # each run has one point, which lies after `end`
        return grid[-1:], bootstrap(mean, [np.stack([curve.y[-1:] for curve in curves])], RESAMPLES)
    return grid[known], bootstrap(mean, [values[:, known]], RESAMPLES)


def singles(study: Study, kinds: Sequence[Kind], env_id: str, curve: Callable[[Run], Curve]) -> list[Line]:
    """The runs that have not ended, as far as they have come."""
    runs = [run for run in study.unfinished if run.name.env_id == env_id and run.name.kind in kinds]
    drawn = [(run.name.kind, curve(run)) for run in runs]
    return [Line(kind, c.x, Estimate(c.y, c.y, c.y), is_single=True) for kind, c in drawn if len(c.x)]


def over_steps(study: Study, kinds: Sequence[Kind], curve: Callable[[Run], Curve], with_level: bool) -> list[Panel]:
    """All tasks together, then one panel per task."""
    panels = [together(study, kinds, curve)] if sum(map(is_anchored, study.env_ids)) > 1 else []
    for env_id in study.env_ids:
        lines = []
        for group in groups_of(study, kinds, env_id):
            x, estimate = band([curve(run) for run in group.runs], group.budget)
            lines.append(Line(group.name.kind, x, estimate))
        lines += singles(study, kinds, env_id, curve)
        unit = max((1e6 if line.x[-1] >= SHORT else 1e3 for line in lines), default=1e6)
        task = task_of(env_id) if with_level and unit == 1e6 else ""
        paper = PAPER_CURVE.get(task, ())
        panels.append(Panel(env_id, STEPS[unit], "return", lines, PAPER_LEVEL.get(task), paper, unit))
    return [panel for panel in panels if panel.lines]


def together(study: Study, kinds: Sequence[Kind], curve: Callable[[Run], Curve]) -> Panel:
    """Interquartile mean of normalised returns, of those kinds that have every task: others would not compare."""
    lines, tasks = [], {env_id for env_id in study.env_ids if is_anchored(env_id)}
    for kind in kinds:
        groups = scored(study, kind)
        if groups and {group.name.env_id for group in groups} == tasks:
            on_grid = [sampled([curve(run) for run in group.runs], group.budget) for group in groups]
            grid, values = on_grid[0][0], [scores for _, scores in on_grid]
            known = np.isfinite(np.concatenate(values)).all(axis=0)
            estimate = iqm(groups, [scores[:, known] for scores in values], RESAMPLES)
            lines.append(Line(kind, grid[known], estimate))
    return Panel(ALL_TASKS, STEPS[1e6], "normalised return", lines, level=1.0, unit=1e6)


def over_time(study: Study, kinds: Sequence[Kind]) -> list[Panel]:
    """Training return over minutes of wall-clock, up to where the first seed had ended."""
    panels = []
    for env_id in study.env_ids:
        lines = []
        for group in groups_of(study, kinds, env_id):
            x, estimate = band([run.clock for run in group.runs], min(run.clock.x[-1] for run in group.runs))
            lines.append(Line(group.name.kind, x, estimate))
        lines += singles(study, kinds, env_id, lambda run: run.clock)
        is_long = any(run.training.x[-1] >= SHORT for run in study.shown if run.name.env_id == env_id)
        level = PAPER_LEVEL.get(task_of(env_id)) if is_long else None
        panels.append(Panel(env_id, "minutes", "return", lines, level, unit=60.0))
    return [panel for panel in panels if panel.lines]


def groups_of(study: Study, kinds: Sequence[Kind], env_id: str) -> list[Group]:
    found = [study.of_kind(kind).get(env_id) for kind in kinds]
    return [group for group in found if group]


def legend_labels(study: Study, kinds: Sequence[Kind]) -> dict[Kind, str]:
    labels = {}
    for kind in kinds:
        seeds = [group.seeds for group in study.of_kind(kind).values()]
        others = sum(run.name.kind == kind for run in study.unfinished)
        parts = [counted("seed", *seeds)] * bool(seeds) + [f"{others} unfinished"] * bool(others)
        labels[kind] = f"{kind} ({', '.join(parts)})"
    return labels


def draw(ax: Axes, panel: Panel, style: Mapping[Kind, Style]) -> None:
    if panel.level is not None:
        ax.axhline(panel.level, color=GREY, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
    if panel.paper:
        ax.plot(np.array(PAPER_STEPS) / panel.unit, panel.paper, "x", color=GREY, markersize=5, zorder=1)
    for line in panel.lines:
        look, x = style[line.kind], line.x / panel.unit
        width, marker = 0.8 if line.is_single else 1.5, "o" if len(x) == 1 else ""
        if not line.is_single:
            ax.fill_between(x, line.estimate.low, line.estimate.high, color=look.color, alpha=0.15, linewidth=0)
        ax.plot(x, line.estimate.value, marker=marker, color=look.color, linestyle=look.line, linewidth=width)
    ax.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    ax.set_xlim(left=0)
    plain(ax)


def single(panel: Panel, style: Mapping[Kind, Style]) -> Figure:
    """For the page, which has one legend for all."""
    figure = Figure(figsize=PANEL, layout="constrained")
    draw(figure.subplots(), panel, style)
    return figure


def combined(panels: Sequence[Panel], style: Mapping[Kind, Style], labels: Mapping[Kind, str]) -> Figure:
    """For a file: all panels under one legend."""
    across = min(4 if len(panels) > 6 else 3, len(panels))
    down = ceil(len(panels) / across)
    figure = Figure(figsize=(PANEL[0] * across, PANEL[1] * down + 0.6), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for ax, panel in zip(axes, panels, strict=False):
        draw(ax, panel, style)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    looks = [(style[kind], label) for kind, label in labels.items()]
    handles = [Line2D([], [], color=look.color, linestyle=look.line) for look, _ in looks]
    names = [label for _, label in looks]
    figure.legend(handles, names, loc="outside lower center", ncols=min(4, len(names)), frameon=False)
    return figure


def intervals(rows: Mapping[str, tuple[Estimate, str]], neutral: float, xlabel: str) -> Figure:
    """Points with their intervals, in their colours under their names, the first on top."""
    figure = Figure(figsize=(PANEL[0], 0.7 + 0.45 * len(rows)), layout="constrained")
    ax = figure.subplots()
    ax.axvline(neutral, color=GREY, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
    for height, (name, (estimate, color)) in enumerate(reversed(list(rows.items()))):
        ax.plot(
            [estimate.low, estimate.high], [height, height], color=color, linewidth=6, alpha=0.35, solid_capstyle="butt"
        )
        ax.plot(estimate.value, height, "|", color=color, markersize=10, markeredgewidth=2.5)
        label = ax.text(0.01, height + 0.25, name, transform=ax.get_yaxis_transform(), va="bottom")
        label.set_in_layout(False)  # a long one would leave no room for the axes
    ax.set(xlabel=xlabel, yticks=[], ylim=(-0.4, len(rows) - 0.1))
    plain(ax)
    return figure


def iqm_figure(study: Study) -> Figure | None:
    found = {kind: groups for kind in study.kinds if (groups := scored(study, kind))}
    style = styles(study)
    rows = {
        f"{kind} ({counted('task', len(groups))}, {counted('seed', *(g.seeds for g in groups))})": (
            iqm(groups, [group.finals for group in groups], COUNT),
            style[kind].color,
        )
        for kind, groups in found.items()
    }
    return intervals(rows, 1.0, "normalised score (IQM)") if rows else None


def improvement_figure(study: Study, comparisons: Sequence[Comparison]) -> Figure | None:
    style = styles(study)
    rows = {
        f"{each} ({counted('seed', each.seeds)})": (each.improvement(), style[each.kind].color) for each in comparisons
    }
    return intervals(rows, 0.5, "probability of improvement") if rows else None

"""How the figures of `geonpg report` are drawn: curves with bands, and intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from geonpg.scripts.common.intervals import COUNT, Estimate
from geonpg.scripts.common.published import PAPER_STEPS
from geonpg.scripts.common.style import GREY, METHOD_STYLE, OTHER_COLOURS, WIDTH, cycled, plain
from geonpg.scripts.reports.comparisons import MAIN_PRESET, Comparison, iqm, scored
from geonpg.scripts.reports.curves import CurveFigure, Panel
from geonpg.scripts.reports.recorded_run import Contender
from geonpg.scripts.reports.study import Study
from geonpg.scripts.reports.words import counted

LineStyle = Literal["-", "--", ":", "-."]

LINES: tuple[LineStyle, ...] = ("-", "--", ":", "-.")
ON_PAGE = (4.4, 3.3)  # inches of a panel that stands alone
ACROSS = 3  # panels of a figure
IN_FIGURE = (WIDTH / ACROSS, 2.5)  # inches of a panel that shares a figure
LEVEL: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "linestyle": (0, (1, 2))}
CROSS: dict[str, Any] = {"color": GREY, "marker": "x", "markersize": 5, "linestyle": "none"}
CIRCLE: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markersize": 5, "linestyle": "none"}
BAR: dict[str, Any] = {"linewidth": 6, "alpha": 0.35, "solid_capstyle": "butt"}
BAND = 0.15  # opacity


@dataclass(frozen=True)
class Style:
    """How the curves of a contender look."""

    color: str
    line: LineStyle


def styles(study: Study) -> dict[Contender, Style]:
    """Ours: colour by method, line by preset. Others: colour by algorithm, line by settings."""
    presets = sorted(study.our_presets, key=lambda preset: preset != MAIN_PRESET)
    found: dict[Contender, Style] = {}
    for contender in study.contenders:
        if contender.preset in presets:
            colour = METHOD_STYLE.get(contender.method, {"color": GREY})["color"]
            found[contender] = Style(str(colour), cycled(LINES, presets.index(contender.preset)))
    others = study.other_algorithms
    algorithms = list(dict.fromkeys(contender.preset for contender in others))
    for contender in others:
        settings = [other for other in others if other.preset == contender.preset]
        colour = cycled(OTHER_COLOURS, algorithms.index(contender.preset))
        found[contender] = Style(colour, cycled(LINES, settings.index(contender)))
    return found


def legend_labels(study: Study, contenders: Sequence[Contender]) -> dict[Contender, str]:
    """Names with the number of their seeds and of unfinished runs."""
    labels = {}
    for contender in contenders:
        seeds = [group.seeds for group in study.groups_of(contender).values()]
        others = sum(run.name.contender == contender for run in study.unfinished)
        parts = [counted("seed", *seeds)] * bool(seeds) + [f"{others} unfinished"] * bool(others)
        labels[contender] = f"{contender} ({', '.join(parts)})"
    return labels


def draw(ax: Axes, panel: Panel, style: Mapping[Contender, Style]) -> None:
    """Draw curves with their bands, and what the paper reached."""
    if panel.level is not None:
        ax.axhline(panel.level, zorder=1, **LEVEL)
    if panel.paper:
        ax.plot(np.array(PAPER_STEPS) / panel.unit, panel.paper, zorder=1, **CROSS)
    for method, (steps, returns) in panel.points.items():
        ax.plot(np.array(steps) / panel.unit, returns, **CIRCLE, color=METHOD_STYLE[method]["color"])
    for line in panel.lines:
        look, x = style[line.contender], line.x / panel.unit
        width, marker = 0.8 if line.is_single else 1.5, "o" if len(x) == 1 else ""
        if not line.is_single:
            ax.fill_between(x, line.estimate.low, line.estimate.high, color=look.color, alpha=BAND, linewidth=0)
        ax.plot(x, line.estimate.value, marker=marker, color=look.color, linestyle=look.line, linewidth=width)
    ax.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    ax.set_xlim(left=0)
    plain(ax)


def single(panel: Panel, style: Mapping[Contender, Style]) -> Figure:
    """A panel for the page, which has one legend for all."""
    figure = Figure(figsize=ON_PAGE, layout="constrained")
    draw(figure.subplots(), panel, style)
    return figure


def combined(curves: CurveFigure, study: Study) -> Figure:
    """All panels and their legend, for a file; labels that a neighbour shares are not repeated."""
    panels, style = curves.panels, styles(study)
    across = min(ACROSS, len(panels))
    down = ceil(len(panels) / across)
    width, height = IN_FIGURE
    figure = Figure(figsize=(width * across, height * down + 0.5), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for i, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
        draw(ax, panel, style)
        ax.set_title(panel.title, fontsize=11)
        if i % across and panels[i - 1].ylabel == panel.ylabel:
            ax.set_ylabel("")
        if i + across < len(panels) and panels[i + across].xlabel == panel.xlabel:
            ax.set_xlabel("")
    add_legend(figure, axes[len(panels) :], legend_of(curves, style, legend_labels(study, curves.contenders)))
    return figure


def add_legend(figure: Figure, spare: Sequence[Axes], keys: Mapping[str, Line2D | Patch]) -> None:
    """Put a legend where no panel is; below all of them, if it would not fit there."""
    for ax in spare:
        ax.set_axis_off()
    if spare and len(keys) <= 9 and max(map(len, keys)) <= 34 * len(spare):
        legend = spare[-1].legend([*keys.values()], [*keys], loc="center right", frameon=False)
        legend.set_in_layout(False)  # it may be wider than its place, and then begins left of it
    else:
        columns = max(1, int(figure.get_figwidth() // IN_FIGURE[0]))
        figure.legend([*keys.values()], [*keys], loc="outside lower center", ncols=columns, frameon=False)


def legend_of(
    curves: CurveFigure, style: Mapping[Contender, Style], labels: Mapping[Contender, str]
) -> dict[str, Line2D | Patch]:
    """What everything in a figure means."""
    looks = {label: style[contender] for contender, label in labels.items()}
    keys: dict[str, Line2D | Patch] = {
        label: Line2D([], [], color=look.color, linestyle=look.line) for label, look in looks.items()
    }
    if curves.has_bands:
        keys["95 % interval"] = Patch(color=GREY, alpha=2 * BAND, linewidth=0)
    if curves.has_level:
        keys["the paper's ACKTR at 1 M steps"] = Line2D([], [], **LEVEL)
    if curves.has_paper:
        keys["the paper's ACKTR before that"] = Line2D([], [], **CROSS)
    if curves.has_points:
        keys["the same method in the paper"] = Line2D([], [], color=GREY, **CIRCLE)
    return keys


def intervals(rows: Mapping[str, tuple[Estimate, str]], neutral: float, xlabel: str) -> Figure:
    """Points with their intervals, in their colours under their names, the first on top."""
    figure = Figure(figsize=(ON_PAGE[0], 0.7 + 0.45 * len(rows)), layout="constrained")
    ax = figure.subplots()
    for height, (name, (estimate, color)) in enumerate(reversed(list(rows.items()))):
        ax.vlines(neutral, height - 0.25, height + 0.2, zorder=1, **LEVEL)  # not through the names
        ax.plot([estimate.low, estimate.high], [height, height], color=color, **BAR)
        ax.plot(estimate.value, height, "|", color=color, markersize=10, markeredgewidth=2.5)
        label = ax.text(0.01, height + 0.25, name, transform=ax.get_yaxis_transform(), va="bottom")
        label.set_in_layout(False)  # a long one would leave no room for the axes
    ax.set(xlabel=xlabel, yticks=[], ylim=(-0.4, len(rows) - 0.1))
    plain(ax)
    return figure


def iqm_figure(study: Study) -> Figure | None:
    """Normalised scores over all tasks; None if nothing has one."""
    found = {contender: groups for contender in study.contenders if (groups := scored(study, contender))}
    style = styles(study)
    rows = {
        f"{contender} ({counted('task', len(groups))}, {counted('seed', *(g.seeds for g in groups))})": (
            iqm(groups, [group.finals for group in groups], COUNT),
            style[contender].color,
        )
        for contender, groups in found.items()
    }
    return intervals(rows, 1.0, "normalised score (IQM)") if rows else None


def improvement_figure(study: Study, comparisons: Sequence[Comparison]) -> Figure | None:
    """Probabilities of improvement; None without a comparison."""
    style = styles(study)
    rows = {
        f"{each} ({counted('seed', each.seeds)})": (each.improvement(), style[each.contender].color)
        for each in comparisons
    }
    return intervals(rows, 0.5, "probability of improvement") if rows else None

"""The figure of `geonpg branch`: differences to `ng` with their intervals."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geonpg.scripts.branches.analysis import (
    ALL,
    MEASURES,
    PRIMARY,
    REFERENCE,
    RIVALS,
    BranchStudy,
    difference,
    places,
    unit,
)
from geonpg.scripts.common.style import GREY, METHOD_STYLE, OTHER_COLOURS, WIDTH, plain

SHOWN = ("score", "surrogate", "kl_miss", "entropy")  # measures
GOOD = {1: "\n(right is better)", -1: "\n(left is better)", 0: "\n"}  # sides, beside the titles


def branch_figure(study: BranchStudy) -> Figure:
    """A panel per measure: all tasks together and each of them, with every rule."""
    figure = Figure(figsize=(WIDTH, 2.2 + 1.3 * len(places(study))), layout="constrained")
    axes = figure.subplots(2, 2, sharey=True)
    for ax, measure in zip(axes.flat, SHOWN, strict=True):
        draw_measure(ax, study, measure)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(f"Paired difference to {REFERENCE} from the same checkpoints, with 95 % intervals")
    return figure


def draw_measure(ax: Axes, study: BranchStudy, measure: str) -> None:
    """Intervals in rows, every task in the units of all of them together, so that they share an axis."""
    where = places(study)[::-1]
    ax.axvline(0, color=GREY, linewidth=1)
    for row, place in enumerate(where):
        divisor = unit(place, measure) if place != ALL else 1.0
        for i, rule in enumerate(reversed(RIVALS)):
            found, height = difference(study, rule, measure, place), row + 0.18 * (i - (len(RIVALS) - 1) / 2)
            colour = METHOD_STYLE.get(rule, {"color": OTHER_COLOURS[0]})["color"]
            ends = [float(found.low) / divisor, float(found.high) / divisor]
            ax.plot(ends, [height] * 2, color=colour, linewidth=3, alpha=0.5)
            label = rule if row == 0 else None
            ax.plot(float(found.value) / divisor, height, "o", color=colour, markersize=5, label=label)
    title = f"normalised {MEASURES[measure].title}" if measure == PRIMARY else MEASURES[measure].title
    ax.set_title(title + GOOD[MEASURES[measure].good], fontsize=10)
    ax.set_yticks(range(len(where)), where)
    ax.locator_params(axis="x", nbins=5)
    plain(ax)

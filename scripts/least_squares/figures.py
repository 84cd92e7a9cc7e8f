"""The figures of `geonpg residuals`: the loss of a network by Jacobians and by time."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geonpg.scripts.common.intervals import Array
from geonpg.scripts.common.style import METHOD_STYLE, OTHER_COLOURS, WIDTH, plain
from geonpg.scripts.least_squares.analysis import Courses
from geonpg.scripts.least_squares.course import Course
from geonpg.scripts.least_squares.design import Design
from geonpg.scripts.least_squares.methods import REFERENCE, counts_jacobians

OTHER_STYLE: dict[str, dict[str, Any]] = {
    "adam": {"color": OTHER_COLOURS[0], "linestyle": "-"},
    "lbfgs": {"color": OTHER_COLOURS[1], "linestyle": "-"},
    "adam-lbfgs": {"color": OTHER_COLOURS[1], "linestyle": "--"},
    "scipy-lm": {"color": OTHER_COLOURS[2], "linestyle": "-"},
    "scipy-trf": {"color": OTHER_COLOURS[2], "linestyle": "--"},
    "scipy-lm-unscaled": {"color": OTHER_COLOURS[2], "linestyle": ":"},
    "scipy-trf-unscaled": {"color": OTHER_COLOURS[2], "linestyle": "-."},
}
GRID = 121  # points of a line


def line_style(method: str) -> dict[str, Any]:
    """Return a method's colour and kind of line."""
    return OTHER_STYLE.get(method) or {"color": METHOD_STYLE[method]["color"]}


def draw(ax: Axes, courses: Courses, method: str, grid: Array, loss: Callable[[Course, float], float]) -> None:
    """Draw the median over seeds, and the quartiles as a band."""
    values = np.array([[loss(course, x) for x in grid] for course in courses[method].values()])
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    ax.semilogy(grid, middle, label=method, linewidth=1.8, **line_style(method))
    ax.fill_between(grid, low, high, color=line_style(method)["color"], alpha=0.12, linewidth=0)


def course_figure(problem: str, courses: Courses, design: Design) -> Figure:
    """Draw the loss by Jacobians, where a method computes some, and by processor seconds."""
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    seconds = float(np.median([course.seconds_at(design.jacobians) for course in courses[REFERENCE].values()]))
    for method in courses:
        if counts_jacobians(method):
            draw(left, courses, method, np.linspace(0, design.jacobians, design.jacobians + 1), Course.at_jacobians)
        draw(right, courses, method, np.linspace(0, seconds, GRID), Course.at_seconds)
    for ax, label in ((left, "Jacobians"), (right, "processor seconds")):
        plain(ax)
        ax.set_xlabel(label)
    left.set_ylabel("loss")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(f"{problem}: median and quartiles of {len(courses[REFERENCE])} seeds")
    return figure

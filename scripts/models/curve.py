"""A run's learning curve as a picture beside its policy: a mark climbs with the return of the episode shown."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from geonpg.errors import require
from geonpg.scripts.common.style import METHOD_STYLE, plain
from geonpg.scripts.models.film import Picture
from geonpg.scripts.models.policy import TrainedPolicy

INCHES = 3.6, 3.0  # fonts keep their proportion to the picture, however large it is


def check_curve(folder: Path) -> None:
    """Refuse a folder that holds no learning curve."""
    for name in ("curve.csv", "evaluations.csv"):
        require((folder / name).is_file(), f"--curve draws the learning curve of a run, and {folder} holds no {name}")


def columns(path: Path, value: str) -> tuple[list[float], list[float]]:
    """Read a column of a table, and the millions of steps that it is over."""
    with path.open(encoding="utf-8") as file:
        rows = [(float(row["steps"]) / 1e6, float(row[value])) for row in csv.DictReader(file)]
    return [x for x, _ in rows], [y for _, y in rows]


class LearningCurve:
    """The learning curve of a policy's run, with a mark at the return of the episode so far."""

    def __init__(self, trained: TrainedPolicy, height: int) -> None:
        figure = Figure(figsize=INCHES, dpi=height / INCHES[1], layout="constrained")
        self.canvas, self.axes, self.steps = FigureCanvasAgg(figure), figure.subplots(), trained.steps / 1e6
        self.draw(trained.path.parent, METHOD_STYLE[trained.settings.method]["color"])
        self.axes.set_title(f"{trained.env_id}, {trained.settings.method}", fontsize=10)
        style: dict[str, Any] = {"color": "#0072B2", "linewidth": 2.5, "marker": "o", "markevery": [1], "markersize": 7}
        (self.mark,) = self.axes.plot([], [], **style, clip_on=False, label="this episode")
        self.axes.legend(loc="lower center", fontsize=8, frameon=False)
        self.canvas.draw()
        self.background = self.canvas.copy_from_bbox(figure.bbox)

    def draw(self, folder: Path, color: str) -> None:
        """Draw all that does not move."""
        steps, returns = columns(folder / "curve.csv", "return")
        self.axes.plot(steps, returns, color=color, linewidth=1.5, label="training")
        steps, means = columns(folder / "evaluations.csv", "mean")
        self.axes.plot(steps, means, "o", color="black", markersize=3.5, label="evaluations")
        low, high = self.axes.get_ylim()
        self.axes.set(xlabel="million steps", ylabel="return", ylim=(min(0, low), max(0, high)))
        plain(self.axes)

    def at(self, earned: float) -> Picture:
        """Return the picture with the mark at this return."""
        self.canvas.restore_region(self.background)
        self.mark.set_data([self.steps, self.steps], [0, earned])
        self.axes.draw_artist(self.mark)
        return np.asarray(self.canvas.buffer_rgba())[:, :, :3]

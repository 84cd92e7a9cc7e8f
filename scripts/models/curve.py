"""A run's learning curve as a picture beside its policy: a mark climbs with the return of the episode shown."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from geonpg.errors import require
from geonpg.scripts.common.style import METHOD_STYLE, plain
from geonpg.scripts.models.film import Picture
from geonpg.scripts.models.policy import TrainedPolicy
from geonpg.scripts.runs.folder import CURVE, EVALUATIONS

MILLION = 1e6
INCHES = 3.6, 3.0  # fonts keep their proportion to the picture, however large it is


def check_curve(folder: Path) -> None:
    """Refuse a folder that holds no learning curve."""
    for table in (CURVE, EVALUATIONS):
        held = table.has_rows(folder)
        require(held, f"--curve draws the learning curve of a run, and {folder} holds no {table.file}")


class LearningCurve:
    """The learning curve of a policy's run, with a mark at the return of the episode so far."""

    def __init__(self, trained: TrainedPolicy, height: int) -> None:
        figure = Figure(figsize=INCHES, dpi=height / INCHES[1], layout="constrained")
        self.canvas, self.axes, self.steps = FigureCanvasAgg(figure), figure.subplots(), trained.steps / MILLION
        self.draw(trained.path.parent, METHOD_STYLE[trained.settings.method]["color"])
        self.axes.set_title(f"{trained.env_id}, {trained.settings.method}", fontsize=10)
        style: dict[str, Any] = {"color": "#0072B2", "linewidth": 2.5, "marker": "o", "markevery": [1], "markersize": 7}
        (self.mark,) = self.axes.plot([], [], **style, clip_on=False, label="this episode")
        self.axes.legend(loc="lower center", fontsize=8, frameon=False)
        self.canvas.draw()
        self.background = self.canvas.copy_from_bbox(figure.bbox)

    def draw(self, folder: Path, color: str) -> None:
        """Draw all that does not move."""
        curve, evaluations = CURVE.read(folder), EVALUATIONS.read(folder)
        steps = [row.steps / MILLION for row in curve]
        self.axes.plot(steps, [row.return_ for row in curve], color=color, linewidth=1.5, label="training")
        steps = [row.steps / MILLION for row in evaluations]
        self.axes.plot(steps, [row.mean for row in evaluations], "ko", markersize=3.5, label="evaluations")
        reached = [0, *(number for row in evaluations for number in row.returns)]  # where the mark may stand
        low, high = self.axes.get_ylim()
        self.axes.set(xlabel="million steps", ylabel="return", ylim=(min(low, *reached), max(high, *reached)))
        plain(self.axes)

    def at(self, earned: float) -> Picture:
        """Return the picture with the mark at this return."""
        self.canvas.restore_region(self.background)
        self.mark.set_data([self.steps, self.steps], [0, earned])
        self.axes.draw_artist(self.mark)
        return np.asarray(self.canvas.buffer_rgba())[:, :, :3]

"""The learning curves of a study: bands over seeds, one panel per task, for training, evaluations and wall-clock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from geonpg.scripts.common.intervals import CURVE_COUNT, Array, Estimate, bootstrap, mean
from geonpg.scripts.common.published import PAPER_CURVE, PAPER_LEVEL, is_anchored, task_of
from geonpg.scripts.reports.comparisons import MAIN_PRESET, iqm, scored
from geonpg.scripts.reports.recorded_run import CHANGED, Contender, RecordedRun, ReturnCurve
from geonpg.scripts.reports.study import Study

CurveOf = Callable[[RecordedRun], ReturnCurve]

POINTS = 50  # along a curve
STEP_UNITS = {1e6: "million steps", 1e3: "thousand steps"}
ALL_TASKS = "All tasks (IQM)"
SHORT = 1e5  # steps; shorter runs are shown in thousands, without what the paper reached in a million
SETS = {"main": "the main preset and other algorithms", "presets": "other presets"}


@dataclass(frozen=True)
class Line:
    """A curve to draw, with its interval."""

    contender: Contender
    x: Array
    estimate: Estimate  # along x
    is_single: bool = False  # one run, which has not ended


@dataclass(frozen=True)
class Panel:
    """The curves of one task, or of all together."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    level: float | None = None  # the paper's
    paper: Sequence[float] = ()  # the paper's curve at PAPER_STEPS
    unit: float = 1.0  # of the lines' x on the axis
    points: Mapping[str, tuple[Sequence[int], Sequence[float]]] = field(default_factory=dict)  # the paper's, by method


@dataclass(frozen=True)
class CurveFigure:
    """The panels of one measure for the contenders that share a figure."""

    measure: str
    which: str  # contenders, a key of SETS
    contenders: Sequence[Contender]
    panels: Sequence[Panel]

    @property
    def has_level(self) -> bool:
        """Whether the level is drawn that the paper reached in a million steps."""
        return any(panel.level is not None for panel in self.panels)

    @property
    def has_paper(self) -> bool:
        """Whether the paper's curve is drawn."""
        return any(panel.paper for panel in self.panels)

    @property
    def has_points(self) -> bool:
        """Whether points of the paper's methods are drawn."""
        return any(panel.points for panel in self.panels)

    @property
    def has_bands(self) -> bool:
        """Whether any curve is a mean over seeds."""
        return any(not line.is_single for panel in self.panels for line in panel.lines)

    @property
    def has_singles(self) -> bool:
        """Whether any curve is a run that has not ended."""
        return any(line.is_single for panel in self.panels for line in panel.lines)


def curve_figures(study: Study) -> list[CurveFigure]:
    """Every measure for every set of contenders, without those that would be empty."""
    found = []
    for which, contenders in sets(study).items():
        measures = {
            "training": over_steps(study, contenders, lambda run: run.training, with_level=True),
            "evaluation": over_steps(study, contenders, lambda run: run.evaluation, with_level=False),
            "clock": over_time(study, contenders),
        }
        found += [CurveFigure(measure, which, contenders, panels) for measure, panels in measures.items() if panels]
    return found


def sets(study: Study) -> dict[str, list[Contender]]:
    """Which contenders share a figure: the main preset and other algorithms; our other presets."""
    ours = [contender for contender in study.contenders if contender.preset in study.our_presets]
    main = [contender for contender in ours if contender.preset.split(CHANGED)[0] == MAIN_PRESET]
    found = {"main": main + study.other_algorithms, "presets": [each for each in ours if each not in main]}
    return {name: contenders for name, contenders in found.items() if contenders}


def sampled(curves: Sequence[ReturnCurve], end: float) -> tuple[Array, Array]:
    """A grid up to `end` and all curves on it, [n] and [curves, n]."""
    grid = np.linspace(end / POINTS, end, POINTS)
    return grid, np.stack([curve.at(grid) for curve in curves])


def band(curves: Sequence[ReturnCurve], end: float) -> tuple[Array, Estimate]:
    """Mean over seeds, from where every seed has a value."""
    grid, values = sampled(curves, end)
    known = np.isfinite(values).all(axis=0)
    if not known.any():  # each run has one point, which lies after `end`
        return grid[-1:], bootstrap(mean, [np.stack([curve.y[-1:] for curve in curves])], CURVE_COUNT)
    return grid[known], bootstrap(mean, [values[:, known]], CURVE_COUNT)


def singles(study: Study, contenders: Sequence[Contender], env_id: str, curve_of: CurveOf) -> list[Line]:
    """The runs that have not ended, as far as they have come."""
    runs = [run for run in study.unfinished if run.name.env_id == env_id and run.name.contender in contenders]
    drawn = [(run.name.contender, curve_of(run)) for run in runs]
    return [Line(contender, c.x, Estimate(c.y, c.y, c.y), is_single=True) for contender, c in drawn if len(c.x)]


def over_steps(study: Study, contenders: Sequence[Contender], curve_of: CurveOf, with_level: bool) -> list[Panel]:
    """All tasks together, then one panel per task."""
    panels = [together(study, contenders, curve_of)] if sum(map(is_anchored, study.env_ids)) > 1 else []
    for env_id in study.env_ids:
        lines = []
        for group in study.groups_on(env_id, contenders):
            x, estimate = band([curve_of(run) for run in group.runs], group.budget)
            lines.append(Line(group.name.contender, x, estimate))
        lines += singles(study, contenders, env_id, curve_of)
        unit = max((1e6 if line.x[-1] >= SHORT else 1e3 for line in lines), default=1e6)
        task = task_of(env_id) if with_level and unit == 1e6 else ""
        paper = PAPER_CURVE.get(task, ())
        panels.append(Panel(env_id, STEP_UNITS[unit], "return", lines, PAPER_LEVEL.get(task), paper, unit))
    return [panel for panel in panels if panel.lines]


def together(study: Study, contenders: Sequence[Contender], curve_of: CurveOf) -> Panel:
    """Interquartile mean of normalised returns of those that have every task: others would not compare."""
    lines, tasks = [], {env_id for env_id in study.env_ids if is_anchored(env_id)}
    for contender in contenders:
        groups = scored(study, contender)
        if groups and {group.name.env_id for group in groups} == tasks:
            on_grid = [sampled([curve_of(run) for run in group.runs], group.budget) for group in groups]
            grid, values = on_grid[0][0], [scores for _, scores in on_grid]
            known = np.isfinite(np.concatenate(values)).all(axis=0)
            estimate = iqm(groups, [scores[:, known] for scores in values], CURVE_COUNT)
            lines.append(Line(contender, grid[known], estimate))
    return Panel(ALL_TASKS, STEP_UNITS[1e6], "normalised return", lines, level=1.0, unit=1e6)


def over_time(study: Study, contenders: Sequence[Contender]) -> list[Panel]:
    """Training return over minutes of wall-clock, up to where the first seed had ended."""
    panels = []
    for env_id in study.env_ids:
        lines = []
        for group in study.groups_on(env_id, contenders):
            x, estimate = band([run.clock for run in group.runs], min(run.clock.x[-1] for run in group.runs))
            lines.append(Line(group.name.contender, x, estimate))
        lines += singles(study, contenders, env_id, lambda run: run.clock)
        is_long = any(run.training.x[-1] >= SHORT for run in study.shown if run.name.env_id == env_id)
        level = PAPER_LEVEL.get(task_of(env_id)) if is_long else None
        panels.append(Panel(env_id, "minutes", "return", lines, level, unit=60.0))
    return [panel for panel in panels if panel.lines]

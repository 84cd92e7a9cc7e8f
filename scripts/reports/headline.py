"""Ours against PPO on one picture: the study's returns over steps above, the races' over minutes below."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geonpg.scripts.common.style import METHOD_STYLE, OTHER_COLOURS, WIDTH, plain
from geonpg.scripts.races.analysis import Race, RaceStudy
from geonpg.scripts.races.contestants import METHOD, OURS
from geonpg.scripts.races.figures import on_minutes
from geonpg.scripts.reports.comparisons import MAIN_PRESET
from geonpg.scripts.reports.curves import STEP_UNITS, band
from geonpg.scripts.reports.recorded_run import Contender, GroupName
from geonpg.scripts.reports.study import Study

# By contestant of the races: what it is called in the study, and how it looks.
WHO = {OURS: Contender(MAIN_PRESET, METHOD), "ppo": Contender("ppo", "zoo")}
LOOK: Mapping[str, dict[str, Any]] = {
    OURS: {"color": METHOD_STYLE[METHOD]["color"], "label": f"{METHOD}, ours"},
    "ppo": {"color": OTHER_COLOURS[0], "label": "SB3's PPO, rl-zoo's settings"},
}
UNIT = 1e6
MOST = 4  # tasks side by side


def shared_races(study: Study, raced: RaceStudy) -> list[Race]:
    """The first race on every task that both have run in the study too, as many as there is room for."""
    found: dict[str, Race] = {}
    for race in raced.races:
        studied = all(GroupName(race.env_id, contender) in study.main for contender in WHO.values())
        if studied and set(WHO) <= set(race.entries):
            found.setdefault(race.env_id, race)
    return list(found.values())[:MOST]


def headline_figure(study: Study, raced: RaceStudy) -> Figure | None:
    """Deterministic returns over steps and over minutes; None if no task has all four curves."""
    races = shared_races(study, raced)
    if not races:
        return None
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    above, below = figure.subplots(2, len(races), squeeze=False)
    for over_steps, over_minutes, race in zip(above, below, races, strict=True):
        draw_steps(over_steps, study, race.env_id)
        draw_minutes(over_minutes, race)
    for first in (above[0], below[0]):
        first.set_ylabel("return")
    figure.legend(*above[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(WHO), frameon=False)
    return figure


def draw_steps(ax: Axes, study: Study, env_id: str) -> None:
    """Mean over seeds with its interval, as far as the runs go."""
    for contestant, contender in WHO.items():
        group = study.main[GroupName(env_id, contender)]
        x, estimate = band([run.evaluation for run in group.runs], group.budget)
        ax.fill_between(x / UNIT, estimate.low, estimate.high, color=LOOK[contestant]["color"], alpha=0.15, linewidth=0)
        ax.plot(x / UNIT, estimate.value, **LOOK[contestant])
    ax.set(title=env_id, xlabel=STEP_UNITS[UNIT])
    ax.set_xlim(left=0)
    plain(ax)


def draw_minutes(ax: Axes, race: Race) -> None:
    """Mean over seeds with their range."""
    for contestant, look in LOOK.items():
        minutes, returns = race.curve(contestant)
        low, high = returns.min(axis=0), returns.max(axis=0)
        ax.fill_between(minutes, low, high, color=look["color"], alpha=0.15, linewidth=0)
        ax.plot(minutes, returns.mean(axis=0), **look)
    on_minutes(ax, race)
    ax.set_xlabel("minutes of training")

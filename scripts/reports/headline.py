"""Ours against PPO on one picture: the study's returns over steps above, the races' over minutes below."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geonpg.scripts.common.artifacts import file_name
from geonpg.scripts.common.style import METHOD_STYLE, OTHER_COLOURS, WIDTH, plain
from geonpg.scripts.races.analysis import Race, RaceStudy
from geonpg.scripts.races.contestants import METHOD, OURS
from geonpg.scripts.races.figures import draw_returns, on_minutes
from geonpg.scripts.reports.comparisons import MAIN_PRESET
from geonpg.scripts.reports.curves import STEP_UNITS, band
from geonpg.scripts.reports.figures import BAND
from geonpg.scripts.reports.recorded_run import Contender, GroupName
from geonpg.scripts.reports.study import Study
from geonpg.scripts.reports.words import span

# By contestant of the races: what it is called in the study.
WHO = {OURS: Contender(MAIN_PRESET, METHOD), "ppo": Contender("ppo", "zoo")}
NAMES = {OURS: f"{METHOD}, ours", "ppo": "SB3's PPO, rl-zoo's settings"}
COLOURS = {OURS: METHOD_STYLE[METHOD]["color"], "ppo": OTHER_COLOURS[0]}
NOTE = (
    "Ours against PPO, deterministic returns: over steps, the means of the study with their 95 % intervals; over "
    "minutes, the means of the races with the range of their seeds."
)
UNIT = 1e6
MOST = 4  # tasks side by side


def shared_races(study: Study, raced: RaceStudy) -> list[Race]:
    """The first race on every task that both have run in the study too, as many as there is room for."""
    found: dict[str, Race] = {}
    for race in raced.races:
        studied = all(group_name(race, contestant) in study.main for contestant in WHO)
        if studied and set(WHO) <= set(race.entries):
            found.setdefault(race.env_id, race)
    return list(found.values())[:MOST]


def group_name(race: Race, contestant: str) -> GroupName:
    """What the study calls a contestant's runs on a race's task."""
    return GroupName(file_name(race.env_id), WHO[contestant])


def headline_figure(study: Study, raced: RaceStudy) -> Figure | None:
    """Deterministic returns over steps and over minutes; None if no task has all four curves."""
    races = shared_races(study, raced)
    if not races:
        return None
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    above, below = figure.subplots(2, len(races), squeeze=False)
    for over_steps, over_minutes, race in zip(above, below, races, strict=True):
        draw_steps(over_steps, study, race)
        draw_minutes(over_minutes, race)
    for first in (above[0], below[0]):
        first.set_ylabel("return")
    labels = [legend_label(contestant, study, races) for contestant in WHO]
    figure.legend(above[0].lines, labels, loc="outside lower center", ncols=len(WHO), frameon=False)
    return figure


def legend_label(contestant: str, study: Study, races: Sequence[Race]) -> str:
    """Name a contestant, and count its seeds."""
    by_steps = span(study.main[group_name(race, contestant)].seeds for race in races)
    by_minutes = span(len(race.entries[contestant]) for race in races)
    return f"{NAMES[contestant]} (seeds: {by_steps} above, {by_minutes} below)"


def draw_steps(ax: Axes, study: Study, race: Race) -> None:
    """Mean over seeds with its interval, as far as the runs go."""
    for contestant in WHO:
        group = study.main[group_name(race, contestant)]
        x, estimate = band([run.evaluation for run in group.runs], group.budget)
        colour = COLOURS[contestant]
        ax.fill_between(x / UNIT, estimate.low, estimate.high, color=colour, alpha=BAND, linewidth=0)
        ax.plot(x / UNIT, estimate.value, color=colour)
    ax.set(title=race.env_id, xlabel=STEP_UNITS[UNIT])
    ax.set_xlim(left=0)
    plain(ax)


def draw_minutes(ax: Axes, race: Race) -> None:
    """Mean over seeds with their range."""
    for contestant, colour in COLOURS.items():
        draw_returns(ax, race, contestant, {"color": colour})
    on_minutes(ax, race)
    ax.set_xlabel("minutes of training")

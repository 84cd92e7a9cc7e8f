"""The figure of races: return over minutes, on a logarithmic axis, and the steps that were made below it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geonpg.scripts.common.style import METHOD_STYLE, OTHER_COLOURS, WIDTH, cycled, plain
from geonpg.scripts.races.analysis import Race, RaceStudy
from geonpg.scripts.races.contestants import CONTESTANTS, METHOD, OURS

COLOURS = (METHOD_STYLE["mid"]["color"], METHOD_STYLE["geof"]["color"], *OTHER_COLOURS)
MARKERS = ("o", "s", "v", "D", "x", "P", "*")  # one more than colours: who shares a colour has another marker
ACROSS = 4  # races side by side
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
MOST_TICKS = 6  # beside each other; of more, only powers of ten are left


def styles() -> dict[str, dict[str, Any]]:
    """Ours in the colour of its method, every other contestant in one of its own."""
    others = [name for name in CONTESTANTS if name != OURS]
    looks = {name: {"color": cycled(COLOURS, i), "marker": cycled(MARKERS, i)} for i, name in enumerate(others)}
    return {OURS: dict(METHOD_STYLE[METHOD]), **looks}


def race_figure(study: RaceStudy) -> Figure:
    """A column for each race, `ACROSS` side by side: returns above, steps below."""
    races = study.races
    across, pairs = min(ACROSS, len(races)), -(-len(races) // ACROSS)
    figure = Figure(figsize=(WIDTH, 0.8 + 4.0 * pairs), layout="constrained")
    axes = figure.subplots(2 * pairs, across, squeeze=False, height_ratios=(3, 2) * pairs)
    returns, steps = axes[::2].ravel(), axes[1::2].ravel()
    look, is_of_one_length = styles(), len({race.minutes for race in races}) == 1
    for above, below, race in zip(returns, steps, races, strict=False):
        for contestant in race.entries:
            draw(above, below, race, contestant, look)
        above.set_title(race.env_id if is_of_one_length else f"{race.env_id}, {race.minutes:g} min")
        below.set(xlabel="minutes of training", yscale="log")
        for ax in (above, below):
            on_minutes(ax, race)
    for above, below in zip(axes[::2, 0], axes[1::2, 0], strict=True):
        above.set_ylabel("return")
        below.set_ylabel("steps")
    for empty in (*returns[len(races) :], *steps[len(races) :]):
        empty.remove()
    handles = {
        label: handle for ax in figure.axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    shown = [name for name in study.contestants if name in handles]
    figure.legend([handles[name] for name in shown], shown, loc="outside lower center", ncols=7, frameon=False)
    return figure


def draw(above: Axes, below: Axes, race: Race, contestant: str, look: Mapping[str, dict[str, Any]]) -> None:
    """Draw a contestant's returns, with the range of its seeds, and its steps."""
    style = {"markersize": 4, "linewidth": 1.5 if contestant == OURS else 1.0, **look[contestant]}
    draw_returns(above, race, contestant, style)
    below.plot(race.curve(contestant)[0], np.maximum(race.steps(contestant), 1), **style)


def draw_returns(ax: Axes, race: Race, contestant: str, style: Mapping[str, Any]) -> None:
    """Draw a contestant's returns over minutes, with the range of its seeds."""
    minutes, returns = race.curve(contestant)
    ax.plot(minutes, returns.mean(axis=0), label=contestant, **style)
    if len(returns) > 1:
        low, high = returns.min(axis=0), returns.max(axis=0)
        ax.fill_between(minutes, low, high, color=style["color"], alpha=0.15, linewidth=0)


def on_minutes(ax: Axes, race: Race) -> None:
    """Give an axis logarithmic minutes."""
    first, last = race.times[0], race.times[-1]
    ticks = [tick for tick in TICKS if first <= tick <= last] or [first]
    if len(ticks) > MOST_TICKS:
        ticks = [tick for tick in ticks if math.log10(tick).is_integer()]
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    plain(ax)

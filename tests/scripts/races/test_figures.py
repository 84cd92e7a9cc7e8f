"""The figure of races."""

from pathlib import Path

import numpy as np
import pytest
from drawn_figures import has_overlapping_ticks
from tiny_races import write_entry, write_races

from geonpg.scripts.races import figures
from geonpg.scripts.races.analysis import read_races
from geonpg.scripts.races.contestants import CONTESTANTS
from geonpg.scripts.races.course import Entry
from geonpg.scripts.races.figures import race_figure, styles


def test_returns_over_logarithmic_minutes_with_steps_below_them(tmp_path: Path) -> None:
    write_races(tmp_path)
    study = read_races(tmp_path)
    figure = race_figure(study)
    races = len(study.races)
    above, below = figure.axes[0], figure.axes[races]
    titles = [f"{race.env_id}, {race.minutes:g} min" for race in study.races]
    assert [ax.get_title() for ax in figure.axes] == titles + [""] * races
    assert above.get_xscale() == below.get_xscale() == below.get_yscale() == "log"
    drawn = {str(line.get_label()): line for line in above.lines}
    assert np.asarray(drawn["geonpg"].get_xdata()).tolist() == [1, 2, 5]
    assert np.asarray(drawn["geonpg"].get_ydata()).tolist() == [2100, 3900, 4100]
    assert np.asarray(below.lines[0].get_ydata()).tolist() == [1000, 2000, 5000]
    assert len(above.collections) == 1, "the range of seeds, where there are several"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["geonpg", "sac"]


def test_more_races_than_fit_side_by_side_go_on_below(tmp_path: Path) -> None:
    names = ["Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Reacher-v4", "Walker2d-v4"]
    for env_id in names:
        write_entry(tmp_path, Entry(env_id, "ppo", 0, 1.0), {0.5: 1.0, 1.0: 2.0})
    figure = race_figure(read_races(tmp_path))
    assert [ax.get_title() for ax in figure.axes if ax.get_title()] == names
    assert len(figure.axes) == 2 * len(names), "and places without a race are empty"


@pytest.mark.parametrize("minutes", [0.5, 5.0, 10.0, 30.0, 100.0, 1000.0])
def test_minutes_side_by_side_do_not_run_into_each_other(minutes: float, tmp_path: Path) -> None:
    for env_id in ("Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4"):
        write_entry(tmp_path, Entry(env_id, "ppo", 0, minutes), {0.1: 1.0, minutes: 2.0})
    assert not has_overlapping_ticks(race_figure(read_races(tmp_path)))


def test_a_contestant_more_has_a_look_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONTRIBUTING.md says how one is added; more than there are colours share them, with another marker."""
    monkeypatch.setattr(figures, "CONTESTANTS", {**CONTESTANTS, **dict.fromkeys("abc", ())})
    looks = figures.styles()
    assert len(looks) == len(CONTESTANTS) + 3
    assert len({(look["color"], look["marker"]) for look in looks.values()}) == len(looks)


def test_everyone_looks_different() -> None:
    looks = styles()
    assert set(looks) == set(CONTESTANTS)
    assert len({look["color"] for look in looks.values()}) == len(looks)

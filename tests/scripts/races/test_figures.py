"""The figure of races."""

from pathlib import Path

import numpy as np
from tiny_races import write_races

from geonpg.scripts.races.analysis import read_races
from geonpg.scripts.races.contestants import CONTESTANTS
from geonpg.scripts.races.figures import race_figure, styles


def test_returns_over_logarithmic_minutes_with_steps_beside_them(tmp_path: Path) -> None:
    write_races(tmp_path)
    study = read_races(tmp_path)
    figure = race_figure(study)
    left, right = figure.axes[:2]
    assert len(figure.axes) == 2 * len(study.races)
    assert left.get_xscale() == right.get_xscale() == right.get_yscale() == "log"
    drawn = {str(line.get_label()): line for line in left.lines}
    assert np.asarray(drawn["geonpg"].get_xdata()).tolist() == [1, 2, 5]
    assert np.asarray(drawn["geonpg"].get_ydata()).tolist() == [2100, 3900, 4100]
    assert np.asarray(right.lines[0].get_ydata()).tolist() == [1000, 2000, 5000]
    assert len(left.collections) == 1, "the range of seeds, where there are several"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["geonpg", "sac"]


def test_everyone_looks_different() -> None:
    looks = styles()
    assert set(looks) == set(CONTESTANTS)
    assert len({look["color"] for look in looks.values()}) == len(looks)

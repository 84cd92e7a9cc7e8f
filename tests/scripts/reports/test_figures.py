"""How the figures of a report look where they are shown, and a legend of everything that is drawn."""

from pathlib import Path

import pytest
from drawn_figures import has_overlapping_ticks, laid_out, least_text_height
from matplotlib.figure import Figure
from synthetic_studies import HIGH, LOW, write_group

from geonpg.scripts.reports.curves import curve_figures
from geonpg.scripts.reports.figures import combined
from geonpg.scripts.reports.reading import read_study


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Figure:
    """Training curves of four tasks and of all together."""
    folder = tmp_path_factory.mktemp("study")
    for env_id in ("HalfCheetah-v4", "Hopper-v4", "InvertedDoublePendulum-v4", "Walker2d-v4"):
        write_group(folder / env_id / "default/ng", LOW)
        write_group(folder / env_id / "default/geo", HIGH)
    study = read_study(folder)
    curves, *_ = curve_figures(study)
    return laid_out(combined(curves, study))


def test_D_text_can_be_read_at_the_width_of_a_readme(training: Figure) -> None:
    assert least_text_height(training) >= 11
    assert not has_overlapping_ticks(training)


def test_D_a_legend_explains_everything_that_is_drawn(training: Figure) -> None:
    (legend,) = [ax.get_legend() for ax in training.axes if ax.get_legend()]  # in the place that no panel takes
    assert [text.get_text() for text in legend.get_texts()] == [
        "default/geo (5 seeds)",
        "default/ng (5 seeds)",
        "95 % interval",
        "the paper's ACKTR at 1 M steps",
        "the paper's ACKTR before that",
    ]


def test_a_legend_is_not_cut_off(training: Figure) -> None:
    (legend,) = [ax.get_legend() for ax in training.axes if ax.get_legend()]
    place, whole = legend.get_window_extent(), training.bbox
    assert whole.x0 <= place.x0 < place.x1 <= whole.x1


def test_a_long_legend_stands_below_the_panels(tmp_path: Path) -> None:
    for i in range(12):
        write_group(tmp_path / f"CartPole-v1/ppo/settings-{i}", [100.0])
    study = read_study(tmp_path)
    figure = combined(curve_figures(study)[0], study)
    assert len(figure.legends[0].get_texts()) == 13

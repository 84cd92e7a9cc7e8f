"""How figures look where they are shown: text that can be read, and a legend of everything that is drawn."""

from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from synthetic_studies import HIGH, LOW, write_group

from geonpg.scripts.branches.figures import branch_figure
from geonpg.scripts.branches.rows import BRANCH_RULES, Branch
from geonpg.scripts.common.style import encoded
from geonpg.scripts.reports.curves import curve_figures
from geonpg.scripts.reports.figures import combined
from geonpg.scripts.reports.reading import read_study

README_WIDTH = 800  # pixels
TASKS = ("HalfCheetah-v4", "Hopper-v4", "InvertedDoublePendulum-v4", "Walker2d-v4")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figure]:
    """What README shows: training curves of four tasks and all together, and the branches of three."""
    folder = tmp_path_factory.mktemp("study")
    for env_id in TASKS:
        write_group(folder / env_id / "default/ng", LOW)
        write_group(folder / env_id / "default/geo", HIGH)
    study = read_study(folder)
    training, *_ = curve_figures(study)
    row = {rule: [Branch(1, rule, 3000.0, 0.1, 0.1, 1.01, 0.01, -0.1)] for rule in BRANCH_RULES}
    drawn = {"training": combined(training, study), "branch": branch_figure(dict.fromkeys(TASKS[:3], row))}
    for figure in drawn.values():
        encoded(figure, "png")  # lays it out
    return drawn


def texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text().strip()]


@pytest.mark.parametrize("name", ["training", "branch"])
def test_D_text_can_be_read_at_the_width_of_a_readme(figures: dict[str, Figure], name: str) -> None:
    figure = figures[name]
    pixels_per_point = README_WIDTH / figure.get_figwidth() / 72
    assert min(text.get_fontsize() for text in texts(figure)) * pixels_per_point >= 11


@pytest.mark.parametrize("name", ["training", "branch"])
def test_D_numbers_along_an_axis_do_not_overlap(figures: dict[str, Figure], name: str) -> None:
    for ax in figures[name].axes:
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text() and ax.axison]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_D_a_legend_explains_everything_that_is_drawn(figures: dict[str, Figure]) -> None:
    figure = figures["training"]
    (legend,) = [ax.get_legend() for ax in figure.axes if ax.get_legend()]  # in the place that no panel takes
    assert [text.get_text() for text in legend.get_texts()] == [
        "default/geo (5 seeds)",
        "default/ng (5 seeds)",
        "95 % interval",
        "the paper's ACKTR at 1 M steps",
        "the paper's ACKTR before that",
    ]


def test_a_long_legend_stands_below_the_panels(tmp_path: Path) -> None:
    for i in range(12):
        write_group(tmp_path / f"CartPole-v1/ppo/settings-{i}", [100.0])
    study = read_study(tmp_path)
    figure = combined(curve_figures(study)[0], study)
    assert len(figure.legends[0].get_texts()) == 13

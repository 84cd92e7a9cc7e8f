"""The figures: what they show, and that it can be read."""

import pytest
from drawn_figures import has_overlapping_ticks, laid_out, least_text_height
from made_up_findings import DESIGN, FINDINGS

from geonpg.scripts.least_squares.figures import course_figure, line_style
from geonpg.scripts.least_squares.methods import ALL_METHODS


def test_a_method_has_a_line_where_it_says_something() -> None:
    figure = laid_out(course_figure("poisson", FINDINGS.courses["poisson"], DESIGN))
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["ng", "geo"]
    assert [line.get_label() for line in right.lines] == ["ng", "geo", "adam"]
    assert left.get_yscale() == "log"
    ng = left.lines[0].get_ydata()
    assert ng[-1] == pytest.approx(4.0 * 3**2)  # the median of five seeds
    assert right.get_xlim()[1] == pytest.approx(1.5 * DESIGN.jacobians, rel=0.1)


def test_the_figure_can_be_read_in_a_readme() -> None:
    figure = laid_out(course_figure("poisson", FINDINGS.courses["poisson"], DESIGN))
    assert least_text_height(figure) >= 10
    assert not has_overlapping_ticks(figure)


def test_methods_look_different() -> None:
    styles = {tuple(line_style(method).items()) for method in ALL_METHODS}
    assert len(styles) == len(ALL_METHODS)

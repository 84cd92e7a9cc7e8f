"""The figure of the branches, as a README shows it."""

import numpy as np
from drawn_figures import has_overlapping_ticks, laid_out, least_text_height

from geonpg.scripts.branches.figures import branch_figure
from geonpg.scripts.branches.rows import BRANCH_RULES, Branch


def test_D_text_can_be_read_at_the_width_of_a_readme() -> None:
    rng = np.random.default_rng(0)
    rows = {
        rule: [Branch(1, rule, *(rng.normal(size=6) * [50, 0.002, 0.1, 0.01, 0.02, 0.005])) for _ in range(10)]
        for rule in BRANCH_RULES
    }
    figure = laid_out(branch_figure(dict.fromkeys(("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4"), rows)))
    assert least_text_height(figure) >= 11
    assert not has_overlapping_ticks(figure)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["mid", "geo", "geof", "geo-published"]

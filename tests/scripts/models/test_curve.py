"""The learning curve beside a film."""

import numpy as np
from short_runs import Runs

import geonpg
from geonpg.scripts.models.curve import LearningCurve


def test_a_mark_climbs_beside_the_curve(runs: Runs) -> None:
    curve = LearningCurve(geonpg.load(runs("pendulum")), 150)
    low, high = (curve.at(earned).copy() for earned in (0.0, 20.0))
    assert low.shape == (150, 180, 3)
    blue = [np.argwhere(picture[:, :, 2].astype(int) - picture[:, :, 0] > 100) for picture in (low, high)]
    rows, columns = np.nonzero((low != high).any(axis=2))
    assert columns.max() - columns.min() < 15, "only the mark moves"
    assert columns.min() > 120, "at the end of training"
    assert blue[1][:, 0].min() < blue[0][blue[0][:, 1] > 120][:, 0].min() - 10, "upwards"
    assert rows.size
    assert np.array_equal(low, curve.at(0.0))

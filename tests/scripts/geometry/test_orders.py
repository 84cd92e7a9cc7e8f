"""Slopes that are fitted to errors; what they come out as is tested with the command."""

import math

import pytest

from geonpg.scripts.geometry.orders import fitted_slope


def test_fitted_slope_passes_over_what_has_no_logarithm() -> None:
    assert fitted_slope([1, 2, 4, 8], [3, 12, math.nan, 192]) == pytest.approx(2)
    assert math.isnan(fitted_slope([1, 2], [1, 0]))

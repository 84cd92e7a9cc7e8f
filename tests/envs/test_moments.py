"""Running moments are those of all rows."""

import numpy as np

from geonpg.envs import Moments


def test_moments_are_those_of_all_rows() -> None:
    rows = np.random.default_rng(0).normal(1e6, 3.0, size=(1000, 4))  # a large mean: naive sums would lose it
    moments = Moments(4)
    assert np.array_equal(moments.variance, np.ones(4))
    for batch in np.split(rows, [1, 10, 300, 301, 999]):
        moments.update(batch)
    assert moments.count == 1000
    assert np.allclose(moments.mean, rows.mean(0), rtol=1e-14)
    assert np.allclose(moments.variance, rows.var(0), rtol=1e-10)


def test_merging_is_the_same_as_seeing_everything() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 2))
    left, right, whole = Moments(2), Moments(2), Moments(2)
    left.update(rows[:37])
    right.update(rows[37:])
    whole.update(rows)
    left.merge(right)
    assert left.count == whole.count
    assert np.allclose(left.mean, whole.mean, rtol=1e-13)
    assert np.allclose(left.squares, whole.squares, rtol=1e-13)
    empty = Moments(2)
    empty.merge(Moments(2))
    assert empty.count == 0

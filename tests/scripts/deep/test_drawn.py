"""Images that are drawn."""

import numpy as np

from geonpg.scripts.deep.drawn import FACE_SIDE, SIDE, blobs, curves, digits


def test_curves_are_seeded_ink_inside_the_image() -> None:
    images = curves(300, 0)
    assert images.shape == (300, SIDE * SIDE)
    assert images.dtype == np.float32
    assert (images >= 0).all()
    assert (images <= 1).all()
    assert np.array_equal(images, curves(300, 0))
    assert not np.array_equal(images, curves(300, 1))
    drawn = (images.reshape(-1, SIDE, SIDE) > 0.5).any(1)  # columns with ink
    assert (drawn.sum(1) >= 4).all(), "three points at least 2 apart are at least 4 wide"
    holes = [np.ptp(np.flatnonzero(columns)) + 1 - columns.sum() for columns in drawn]
    assert max(holes) == 0, "a curve has no gaps"


def test_the_stand_in_digits_can_be_told_apart() -> None:
    images, labels = digits(400, 0)
    guesses = labels[:300][((images[300:, None] - images[:300]) ** 2).sum(-1).argmin(1)]
    assert (guesses == labels[300:]).mean() > 0.7


def test_the_stand_in_faces_are_seeded() -> None:
    images = blobs(20, 0)
    assert images.shape == (20, FACE_SIDE * FACE_SIDE)
    assert images.dtype == np.float32
    assert np.array_equal(images, blobs(20, 0))
    assert not np.array_equal(images, blobs(20, 1))

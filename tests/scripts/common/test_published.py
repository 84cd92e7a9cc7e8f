"""Levels by which returns are measured."""

import numpy as np
import pytest

from geonpg.scripts.common.published import (
    PAPER_CURVE,
    PAPER_FINALS,
    PAPER_LEVEL,
    PAPER_STEPS,
    PAPER_TASKS,
    PUBLISHED,
    RANDOM_LEVEL,
    TASKS,
    kept,
    normalised,
    paper_points,
)


def test_a_run_keeps_a_share_of_its_best_distance_from_a_random_policy() -> None:
    random = RANDOM_LEVEL["Swimmer"]
    best, last = np.array([100.0, 100.0, random + 50]), np.array([100.0, random, random + 45])
    assert kept("Swimmer-v5", best, last) == pytest.approx([1.0, 0.0, 0.9])


def test_a_run_that_reached_nothing_has_lost_nothing() -> None:
    random = RANDOM_LEVEL["Pendulum"]
    assert kept("Pendulum-v1", np.array([random, random - 100]), np.array([random - 50, random - 200])).tolist() == [
        1,
        1,
    ]


def test_the_paper_is_one_and_random_is_zero() -> None:
    assert normalised("InvertedPendulum-v4", np.array([980.0, 6.0])).tolist() == [1, 0]


def test_anchors_agree_with_each_other() -> None:
    assert all(len(row.returns) == len(TASKS) for row in PUBLISHED)
    assert list(PAPER_FINALS["ng"].values()) == list(PAPER_LEVEL.values())
    for task in PAPER_TASKS:
        ends = np.array([RANDOM_LEVEL[task], PAPER_LEVEL[task]])
        assert normalised(f"{task}-v4", ends) == pytest.approx([0, 1])


def test_points_of_the_papers_figure() -> None:
    assert [row.method for row in PUBLISHED[:3]] == ["ACKTR", "mid-ACKTR", "geo-ACKTR"]
    for method, row in zip(("ng", "mid", "geo"), PUBLISHED, strict=False):
        assert list(PAPER_FINALS[method].values()) == [float(cell) for cell in row.returns if cell]
    assert paper_points("mid", "Walker2d") == (PAPER_STEPS, (403, 642, 877, 1021, 1220))
    assert paper_points("geo", "Reacher") == (PAPER_STEPS[-1:], (-4.9,))
    for task, curve in PAPER_CURVE.items():
        assert paper_points("ng", task)[1] == curve

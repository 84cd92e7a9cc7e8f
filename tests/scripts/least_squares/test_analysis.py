"""What is found in results whose truth is known."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_findings import DESIGN, FINDINGS, course, outcomes, trial

from geonpg.scripts.least_squares.analysis import (
    at_equal_jacobians,
    at_equal_time,
    jacobians_ratio,
    near_best,
    numbers_of,
    ratio,
    read_findings,
)
from geonpg.scripts.least_squares.course import write_course
from geonpg.scripts.least_squares.pieces import course_path


def test_a_ratio_is_a_geometric_mean_with_students_interval_of_the_logarithms() -> None:
    found = ratio(np.log([10.0, 1000.0, 100.0]).tolist())
    reach = 4.302653 * math.log(10) / math.sqrt(3)  # Student's quantile for two degrees
    assert float(found.value) == pytest.approx(100.0)
    assert float(found.low) == pytest.approx(100 * math.exp(-reach), rel=1e-5)
    assert float(found.high) == pytest.approx(100 * math.exp(reach), rel=1e-5)


def test_ratios_are_of_pairs() -> None:
    """Seeds differ a millionfold, pairs by a factor of four."""
    geo = {seed: course(10.0**seed, 1.0) for seed in range(7)}
    courses = {"geo": geo, "ng": {seed: course(4 * 10.0**seed, 1.0) for seed in range(1, 9)}}
    found = at_equal_jacobians(courses, "ng", DESIGN)
    assert (float(found.low), float(found.high)) == pytest.approx((4.0, 4.0))


def test_at_equal_time_a_quicker_method_has_computed_more() -> None:
    """Every Jacobian of a course divides the loss by two."""
    courses = {"geo": {0: course(1.0, 2.0), 1: course(1.0, 2.0)}, "ng": {0: course(8.0, 1.0), 1: course(8.0, 1.0)}}
    assert float(at_equal_jacobians(courses, "ng", DESIGN).value) == pytest.approx(8.0)
    assert float(at_equal_time(courses, "ng", DESIGN).value) == pytest.approx(8 * 2.0**-DESIGN.jacobians)


def test_jacobians_are_compared_where_both_solved() -> None:
    found = jacobians_ratio(outcomes([10, 20, None, 40]), outcomes([20, 40, 1, None]))
    assert found is not None
    assert (float(found.low), float(found.high)) == pytest.approx((0.5, 0.5))
    assert jacobians_ratio(outcomes([10, None]), outcomes([None, 10])) is None


def test_near_the_best_means_that_of_all_rules_on_the_same_data() -> None:
    best, near, far = trial("geo", 1, loss=5.0), trial("ng", 1, loss=5.009), trial("mid", 1, loss=5.02)
    left = trial("ng", 2, loss=4.0, left=1)
    other = trial("ng", 3, loss=9.0)
    found = near_best([best, near, far, left, other])
    assert [found[each] for each in (best, near, far, left, other)] == [True, True, False, False, True]


def test_the_numbers_have_the_names_that_are_promised() -> None:
    found = numbers_of(FINDINGS)
    assert found["residuals/poisson/ng_over_geo"] == pytest.approx(4.0)
    assert found["residuals/poisson/ng_over_geo/low"] <= 4.0 <= found["residuals/poisson/ng_over_geo/high"]
    assert "residuals/poisson/adam_over_geo" not in found, "Adam computes no Jacobians"
    assert found["residuals/poisson/adam_over_geo/equal_time"] > 1
    assert {f"residuals/poisson/adam_over_geo/equal_time/{end}" for end in ("low", "high")} <= found.keys()
    assert found["jacobians/three-exponentials/geo_over_ng"] == pytest.approx(0.5)
    assert found["jacobians/three-exponentials/ng/solved"] == 0.75
    assert found["nist/geo/solved"] == 1.0
    assert found["variational/robust/wide/ng/left"] == 0.5
    assert found["variational/robust/wide/geo/left"] == 0.0
    assert all(isinstance(value, float) for value in found.values())


def test_only_what_is_there_is_reported() -> None:
    alone = replace(FINDINGS, fits={}, regressions={}, trials=[], courses={})
    assert alone.is_empty
    assert numbers_of(alone) == {}


def test_courses_are_read_by_problem_method_and_seed(tmp_path: Path) -> None:
    for seed in (2, 10):
        write_course(course_path(tmp_path, "front", "geo", seed), course(1.0, 1.0))
    write_course(course_path(tmp_path, "cubic", "ng", 0), course(1.0, 1.0))
    found = read_findings(tmp_path, DESIGN)
    assert list(found.courses) == ["front"], "nothing is said of a problem without the reference"
    assert list(found.courses["front"]["geo"]) == [2, 10]

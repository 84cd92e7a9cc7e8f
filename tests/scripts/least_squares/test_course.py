"""Courses of runs: what is read off them, and their files."""

from pathlib import Path

import pytest

from geonpg.errors import Refused
from geonpg.scripts.least_squares.course import LEAST, Course, course_of, read_course, write_course
from geonpg.scripts.least_squares.recorder import Budget, Recorder

COURSE = Course([0, 1, 3, 3, 4], [0.1, 0.5, 1.0, 1.5, 2.0], [8.0, 4.0, 2.0, 1.0, 0.0], 0.25)


def test_a_loss_counts_from_when_it_is_known() -> None:
    assert [COURSE.at_jacobians(n) for n in (0, 1, 2, 3)] == [8.0, 4.0, 4.0, 1.0]
    assert [COURSE.at_seconds(t) for t in (0.0, 0.1, 0.99, 1.0, 1.7)] == [8.0, 8.0, 4.0, 2.0, 1.0]


def test_the_end_lasts_and_has_a_logarithm() -> None:
    assert COURSE.at_jacobians(100) == COURSE.at_seconds(100.0) == LEAST > 0


def test_the_time_of_jacobians_is_when_their_last_loss_was_known() -> None:
    assert [COURSE.seconds_at(n) for n in (0, 1, 2, 3, 100)] == [0.1, 0.5, 0.5, 1.5, 2.0]


def test_a_record_becomes_a_course_that_survives_the_disk(tmp_path: Path) -> None:
    record = Recorder(Budget(jacobians=9))
    record.note(3.0)
    record.jacobians = 2
    record.note(1.0)
    course = course_of(record, 0.5)
    assert (course.jacobians, course.loss, course.error) == ([0, 2], [3.0, 1.0], 0.5)
    write_course(tmp_path / "new" / "0.json", course)
    assert read_course(tmp_path / "new" / "0.json") == course


@pytest.mark.parametrize("text", ["", "{", '{"loss": [1.0]}', "[1, 2]"])
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text(text)
    with pytest.raises(Refused, match="is no course of a run"):
        read_course(tmp_path / "0.json")

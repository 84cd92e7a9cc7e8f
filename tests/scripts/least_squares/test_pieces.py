"""Pieces of a study: what is made, and what is left as it is."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from geonpg.scripts.least_squares.course import Course, read_course, write_course
from geonpg.scripts.least_squares.design import ALL_PROBLEMS, Design
from geonpg.scripts.least_squares.pieces import CoursePiece, RowsPiece, course_path, fit, pieces_of, regress

TINY = Design(width=4, jacobians=2, starts=2, most=40, regressions=1)


def never() -> bool:
    return False


@dataclass(frozen=True)
class Row:
    number: int
    square: int


def squares(folder: Path, keys: list[int], made: list[int]) -> RowsPiece[Row, int]:
    def make(key: int) -> Row:
        made.append(key)
        return Row(key, key**2)

    return RowsPiece(folder, "squares/all", Row, keys, make, lambda row: row.number)


def test_rows_that_are_there_are_not_made_again(tmp_path: Path) -> None:
    made: list[int] = []
    assert not squares(tmp_path, [1, 2], made).is_complete
    squares(tmp_path, [1, 2], made).work(never)
    assert squares(tmp_path, [1, 2], made).is_complete
    squares(tmp_path, [1, 2, 3], made).work(never)
    assert made == [1, 2, 3]
    assert squares(tmp_path, [], made).rows() == [Row(1, 1), Row(2, 4), Row(3, 9)]


def test_a_table_stops_between_rows_and_keeps_them(tmp_path: Path) -> None:
    made: list[int] = []
    squares(tmp_path, [1, 2, 3], made).work(lambda: len(made) == 2)
    assert squares(tmp_path, [], made).rows() == [Row(1, 1), Row(2, 4)]


def test_an_opponent_works_as_long_as_the_reference_did(tmp_path: Path) -> None:
    reference = Course([0, 1, 2, 3], [0.0, 0.1, 0.4, 9.0], [4.0, 3.0, 2.0, 1.0], 1.0)
    write_course(course_path(tmp_path, "poisson", "geo", 1000), reference)
    piece = CoursePiece(tmp_path, TINY, "poisson", "adam", 1000)
    assert not piece.is_complete
    piece.work(never)
    assert piece.is_complete
    seconds = read_course(piece.path).seconds
    assert seconds[-2] < 0.4 <= seconds[-1] < 4.0


def test_the_reference_works_for_its_jacobians(tmp_path: Path) -> None:
    piece = CoursePiece(tmp_path, TINY, "poisson", "geo", 1000)
    piece.work(never)
    assert read_course(piece.path).jacobians == [0, 1, 2]


@pytest.mark.parametrize("problem", ALL_PROBLEMS)
def test_the_reference_comes_first_and_pieces_have_names_of_their_own(problem: str, tmp_path: Path) -> None:
    pieces = pieces_of(tmp_path, TINY, problem, ["ng", "adam", "scipy-lm"], [3, 4])
    names = [piece.name for piece in pieces]
    assert len(set(names)) == len(names)
    assert names[0].startswith(f"{problem}/geo")


def test_methods_have_pieces_where_they_say_something(tmp_path: Path) -> None:
    methods = ["geo", "adam", "scipy-lm"]
    found = {p: [each.name for each in pieces_of(tmp_path, TINY, p, methods, [3])] for p in ALL_PROBLEMS}
    assert found["burgers"] == ["burgers/geo/3", "burgers/adam/3", "burgers/scipy-lm/3"]
    assert found["rosenbrock"] == ["rosenbrock/geo", "rosenbrock/scipy-lm"]
    assert found["nist"] == ["nist/geo", "nist/scipy-lm"]
    assert found["variational"] == ["variational/geo"]


def test_a_fit_says_whether_it_was_solved() -> None:
    solved = fit("rosenbrock", "geo", 100, 1000)
    assert (solved.solved, solved.start) == (1, 1000)
    assert solved.loss <= 1e-12
    given_up = fit("rosenbrock", "geo", 1, 1000)
    assert (given_up.solved, given_up.jacobians) == (0, 1)


@pytest.mark.parametrize("method", ["ng", "geo", "scipy-lm"])
def test_a_regression_says_whether_six_digits_are_right(method: str) -> None:
    assert regress(method, 500, "Misra1a", 1).solved == 1
    hurried = regress(method, 1, "Misra1a", 1)
    assert hurried.solved == 0
    assert hurried.error > 1e-6

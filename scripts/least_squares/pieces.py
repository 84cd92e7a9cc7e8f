"""The pieces of a study: what one method makes of one problem, each in a file that is written whole or not at all."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from geonpg.scripts.common.records import Record, read_records, write_records
from geonpg.scripts.least_squares.course import Course, course_of, read_course, write_course
from geonpg.scripts.least_squares.design import DIGITS, NIST, SOLVED, VARIATIONAL, Design
from geonpg.scripts.least_squares.fits import FITS, make_fit
from geonpg.scripts.least_squares.methods import ALL_METHODS, OURS, REFERENCE, SCALED, counts_jacobians
from geonpg.scripts.least_squares.nist import MODELS, STARTS, make_regression
from geonpg.scripts.least_squares.opponents import record_of
from geonpg.scripts.least_squares.pinns import PINNS, make_pinn
from geonpg.scripts.least_squares.recorder import Budget, Recorder
from geonpg.scripts.least_squares.variational import LIKELIHOODS, RATES, Trial, infer
from geonpg.scripts.least_squares.variational import STARTS as FIRST_GUESSES

WARM_UP = 2, 0.05  # Jacobians and seconds before time is measured: torch loads much when it is first used


class Piece(ABC):
    """A file of results.

    name: unique in the study.
    """

    def __init__(self, results: Path, name: str) -> None:
        self.name, self.stem = name, results / name

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether there is nothing left to do."""

    @abstractmethod
    def work(self, stop: Callable[[], bool]) -> None:
        """Do what is left to do, or until `stop()` is true."""


class CoursePiece(Piece):
    """The course of one method's training of one network."""

    def __init__(self, results: Path, design: Design, problem: str, method: str, seed: int) -> None:
        super().__init__(results, f"{problem}/{method}/{seed}")
        self.design, self.problem, self.method, self.seed = design, problem, method, seed
        self.path = course_path(results, problem, method, seed)
        self._reference = course_path(results, problem, REFERENCE, seed)

    @property
    def is_complete(self) -> bool:
        return self.path.exists()

    def work(self, stop: Callable[[], bool]) -> None:
        """Train for as many Jacobians as all, and for as long as the reference needed for its own."""
        seconds = 0.0
        if self.method != REFERENCE:
            seconds = read_course(self._reference).seconds_at(self.design.jacobians)
        self._train(*WARM_UP)
        write_course(self.path, self._train(self.design.jacobians, seconds))

    def _train(self, jacobians: int, seconds: float) -> Course:
        """Train from the start; a method that computes no Jacobians need not wait for them."""
        problem = make_pinn(self.problem, self.seed, self.design.width)
        budget = Budget(jacobians if counts_jacobians(self.method) else 0, seconds)
        record = record_of(ALL_METHODS[self.method], problem, Recorder(budget))
        return course_of(record, problem.error())


def course_path(results: Path, problem: str, method: str, seed: int) -> Path:
    """Return the file of a course."""
    return results / problem / method / f"{seed}.json"


@dataclass(frozen=True)
class Outcome:
    """How a fit or a regression ended: whether it was solved, and after how many Jacobians."""

    problem: str
    start: int
    solved: int
    jacobians: int
    loss: float
    error: float


R = TypeVar("R", bound=Record)
K = TypeVar("K")


class RowsPiece(Piece, Generic[R, K]):
    """A table whose rows are made one by one.

    keys: what the rows are made for.
    make: makes a row for a key.
    key_of: the key of a row.
    """

    def __init__(
        self,
        results: Path,
        name: str,
        kind: type[R],
        keys: Iterable[K],
        make: Callable[[K], R],
        key_of: Callable[[R], K],
    ) -> None:
        super().__init__(results, name)
        self.path, self.kind, self.keys, self._make, self._key_of = rows_path(results, name), kind, keys, make, key_of

    def rows(self) -> list[R]:
        """Read the rows that there are."""
        return read_records(self.path, self.kind, "results")

    def _missing(self) -> list[K]:
        there = set(map(self._key_of, self.rows()))
        return [key for key in self.keys if key not in there]

    @property
    def is_complete(self) -> bool:
        return not self._missing()

    def work(self, stop: Callable[[], bool]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        rows = self.rows()
        for key in self._missing():
            if stop():
                return
            rows.append(self._make(key))
            write_records(self.path, self.kind, rows)


def rows_path(results: Path, name: str) -> Path:
    """Return the file of a table."""
    return results / f"{name}.csv"


def fit(name: str, method: str, most: int, seed: int) -> Outcome:
    """Fit a model from one random start."""
    problem = make_fit(name, seed)
    record = record_of(ALL_METHODS[method], problem, Recorder(Budget(most, target=SOLVED)))
    return Outcome(name, seed, int(record.best <= SOLVED), record.jacobians, record.best, problem.error())


def regress(method: str, most: int, name: str, start: int) -> Outcome:
    """Solve one of NIST's problems from one of its starts, until the method itself has finished."""
    problem = make_regression(name, start)
    record = record_of({**ALL_METHODS, **SCALED}[method], problem, Recorder(Budget(most)))
    error = problem.error()
    return Outcome(name, start, int(error <= DIGITS), record.jacobians, record.best, error)


def fit_piece(results: Path, design: Design, name: str, method: str, seeds: Sequence[int]) -> Piece:
    """A method's outcomes from all starts of a fit."""
    starts = [design.starts * seed + k for seed in seeds for k in range(design.starts)]
    return RowsPiece(
        results, f"{name}/{method}", Outcome, starts, lambda s: fit(name, method, design.most, s), lambda row: row.start
    )


def regressions_piece(results: Path, design: Design, method: str) -> Piece:
    """A method's outcomes on NIST's problems."""
    keys = [(name, start) for name in list(MODELS)[: design.regressions] for start in range(STARTS)]
    return RowsPiece(
        results,
        f"{NIST}/{method}",
        Outcome,
        keys,
        lambda key: regress(method, design.most, *key),
        lambda row: (row.problem, row.start),
    )


def inference_piece(results: Path, rule: str, seeds: Sequence[int]) -> Piece:
    """A rule's trials of variational inference."""
    keys = [(p, s, rate, seed) for seed in seeds for p in LIKELIHOODS for s in FIRST_GUESSES for rate in RATES]
    return RowsPiece(
        results,
        f"{VARIATIONAL}/{rule}",
        Trial,
        keys,
        lambda key: infer(key[0], key[1], rule, *key[2:]),
        lambda row: (row.problem, row.start, row.rate, row.seed),
    )


def pieces_of(results: Path, design: Design, problem: str, methods: Sequence[str], seeds: Sequence[int]) -> list[Piece]:
    """Make the pieces of a problem, those of the reference first; methods that say nothing about it have none."""
    ordered = [REFERENCE, *(method for method in methods if method != REFERENCE)]
    counting = [method for method in ordered if counts_jacobians(method)]
    if problem in PINNS:
        return [CoursePiece(results, design, problem, method, seed) for seed in seeds for method in ordered]
    if problem in FITS:
        return [fit_piece(results, design, problem, method, seeds) for method in counting]
    if problem == NIST:
        return [regressions_piece(results, design, method) for method in counting]
    return [inference_piece(results, method, seeds) for method in ordered if method in OURS]

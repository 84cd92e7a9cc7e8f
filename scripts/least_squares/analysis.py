"""What a study found: ratios with paired intervals, shares of what was solved; as numbers and as tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from geonpg.scripts.common.intervals import Array, Estimate, student
from geonpg.scripts.common.records import Record, read_records
from geonpg.scripts.least_squares.course import Course, read_course
from geonpg.scripts.least_squares.design import NIST, VARIATIONAL, Design
from geonpg.scripts.least_squares.fits import FITS
from geonpg.scripts.least_squares.methods import ALL_METHODS, OURS, REFERENCE, counts_jacobians
from geonpg.scripts.least_squares.pieces import Outcome, course_path, rows_path
from geonpg.scripts.least_squares.pinns import PINNS
from geonpg.scripts.least_squares.variational import LIKELIHOODS, STARTS, Trial

PLAIN = "ng"  # the rule without a second order
NEAR = 0.01  # of the lowest loss that anybody found: how near variational inference must end, in nats

Courses = Mapping[str, Mapping[int, Course]]  # by method and seed
Numbers = dict[str, float]
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Findings:
    """Everything that is in a folder of results."""

    design: Design
    courses: Mapping[str, Courses]  # by problem
    fits: Mapping[str, Mapping[str, list[Outcome]]]  # by problem and method
    regressions: Mapping[str, list[Outcome]]  # by method
    trials: list[Trial]

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been found yet."""
        return not (self.courses or self.fits or self.regressions or self.trials)


def read_findings(results: Path, design: Design) -> Findings:
    """Read what there is; a network's seeds count once the reference is there."""
    courses = {problem: read_courses(results, problem) for problem in PINNS}
    fits = {problem: read_tables(results, problem, Outcome) for problem in FITS}
    trials = [trial for rows in read_tables(results, VARIATIONAL, Trial).values() for trial in rows]
    return Findings(
        design,
        {problem: found for problem, found in courses.items() if REFERENCE in found},
        {problem: found for problem, found in fits.items() if found},
        read_tables(results, NIST, Outcome),
        trials,
    )


def read_courses(results: Path, problem: str) -> Courses:
    """Read the courses of a problem."""
    found: dict[str, dict[int, Course]] = {}
    for method in ALL_METHODS:
        paths = sorted(course_path(results, problem, method, 0).parent.glob("*.json"), key=lambda path: int(path.stem))
        if paths:
            found[method] = {int(path.stem): read_course(path) for path in paths}
    return found


def read_tables(results: Path, problem: str, kind: type[R]) -> dict[str, list[R]]:
    """Read the tables of a problem, by method."""
    found = {name: read_records(rows_path(results, f"{problem}/{name}"), kind, "results") for name in ALL_METHODS}
    return {method: rows for method, rows in found.items() if rows}


def ratio(logs: Sequence[float]) -> Estimate:
    """The geometric mean of paired ratios, given by their logarithms, with Student's interval."""
    found = student(np.array(logs))
    return Estimate(np.exp(found.value), np.exp(found.low), np.exp(found.high))


def compared(courses: Courses, method: str, loss: Callable[[Course, int], float]) -> Estimate:
    """How many times as high a method's loss is as the reference's, over the seeds that both have.

    loss: of a course and its seed.
    """
    seeds = sorted(courses[method].keys() & courses[REFERENCE].keys())
    return ratio([np.log(loss(courses[method][s], s) / loss(courses[REFERENCE][s], s)) for s in seeds])


def at_equal_jacobians(courses: Courses, method: str, design: Design) -> Estimate:
    """Compare where as many Jacobians have been computed."""
    return compared(courses, method, lambda course, _: course.at_jacobians(design.jacobians))


def at_equal_time(courses: Courses, method: str, design: Design) -> Estimate:
    """Compare at the processor time at which the reference, of the same seed, had computed its Jacobians."""
    reference = courses[REFERENCE]
    return compared(courses, method, lambda course, s: course.at_seconds(reference[s].seconds_at(design.jacobians)))


def course_numbers(problem: str, courses: Courses, design: Design) -> Numbers:
    """The numbers of one network."""
    found: Numbers = {}
    for method, by_seed in courses.items():
        prefix, runs = f"residuals/{problem}/{method}", list(by_seed.values())
        found[f"{prefix}/error"] = float(np.median([run.error for run in runs]))
        if counts_jacobians(method):
            found[f"{prefix}/loss"] = geometric([run.at_jacobians(design.jacobians) for run in runs])
            found[f"{prefix}/seconds"] = float(np.median([run.seconds_at(design.jacobians) for run in runs]))
        if method != REFERENCE:
            name = f"{prefix}_over_{REFERENCE}"
            if counts_jacobians(method):
                found |= at_equal_jacobians(courses, method, design).numbers(name)
            found |= at_equal_time(courses, method, design).numbers(f"{name}/equal_time")
    return found


def geometric(values: Sequence[float] | Array) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def share_solved(rows: Sequence[Outcome]) -> float:
    """The share of starts that were solved."""
    return float(np.mean([row.solved for row in rows]))


def median_jacobians(rows: Sequence[Outcome]) -> float:
    """How many Jacobians a start took, among those that were solved; nan if none was."""
    solved = [row.jacobians for row in rows if row.solved]
    return float(np.median(solved)) if solved else float("nan")


def jacobians_ratio(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> Estimate | None:
    """How many times as many Jacobians ours took, over the starts that both solved; None if there are none."""
    taken = [{row.start: row.jacobians for row in rows if row.solved} for rows in (ours, theirs)]
    both = sorted(taken[0].keys() & taken[1].keys())
    # a start that happens to lie at the solution takes none
    return ratio([np.log(max(1, taken[0][s]) / max(1, taken[1][s])) for s in both]) if both else None


def fit_numbers(problem: str, fits: Mapping[str, list[Outcome]]) -> Numbers:
    """The numbers of one fit."""
    found: Numbers = {}
    for method, rows in fits.items():
        found[f"jacobians/{problem}/{method}/solved"] = share_solved(rows)
        estimate = jacobians_ratio(rows, fits[PLAIN]) if PLAIN in fits and method != PLAIN else None
        if estimate is not None:
            found |= estimate.numbers(f"jacobians/{problem}/{method}_over_{PLAIN}")
    return found


def near_best(trials: Sequence[Trial]) -> dict[Trial, bool]:
    """Whether each trial stayed in the cone and ended near the lowest loss of all trials on the same data."""
    lowest: dict[tuple[str, int], float] = {}
    for trial in trials:
        if not trial.left and np.isfinite(trial.loss):
            key = (trial.problem, trial.seed)
            lowest[key] = min(trial.loss, lowest.get(key, np.inf))
    return {t: not t.left and bool(t.loss <= lowest.get((t.problem, t.seed), -np.inf) + NEAR) for t in trials}


def inference_numbers(trials: Sequence[Trial]) -> Numbers:
    """Shares of trials, over all steps and seeds, that left the cone, and that ended near the best."""
    found: Numbers = {}
    near = near_best(trials)
    for problem in LIKELIHOODS:
        for start in STARTS:
            for rule in OURS:
                group = [t for t in trials if (t.problem, t.start, t.rule) == (problem, start, rule)]
                if group:
                    prefix = f"{VARIATIONAL}/{problem}/{start}/{rule}"
                    found[f"{prefix}/left"] = float(np.mean([t.left for t in group]))
                    found[f"{prefix}/solved"] = float(np.mean([near[t] for t in group]))
    return found


def numbers_of(findings: Findings) -> Numbers:
    """Everything that `--json` prints."""
    found: Numbers = {}
    for problem, courses in findings.courses.items():
        found |= course_numbers(problem, courses, findings.design)
    for problem, fits in findings.fits.items():
        found |= fit_numbers(problem, fits)
    for method, rows in findings.regressions.items():
        found |= {f"{NIST}/{method}/solved": share_solved(rows), f"{NIST}/{method}/jacobians": median_jacobians(rows)}
    return found | inference_numbers(findings.trials)

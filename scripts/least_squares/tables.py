"""The tables of `geonpg residuals`, for people."""

from collections.abc import Mapping, Sequence

import numpy as np

from geonpg.scripts.common.artifacts import Cell, Table
from geonpg.scripts.common.intervals import Estimate
from geonpg.scripts.least_squares.analysis import (
    NEAR,
    PLAIN,
    Courses,
    Findings,
    at_equal_jacobians,
    at_equal_time,
    geometric,
    jacobians_ratio,
    median_jacobians,
    near_best,
    share_solved,
)
from geonpg.scripts.least_squares.design import DIGITS, SOLVED, Design
from geonpg.scripts.least_squares.methods import OURS, REFERENCE, counts_jacobians
from geonpg.scripts.least_squares.pieces import Outcome
from geonpg.scripts.least_squares.variational import LIKELIHOODS, RATES, STARTS, Trial


def interval(estimate: Estimate) -> str:
    """A ratio with its interval."""
    return f"{estimate.value:.3g} ({estimate.low:.3g} to {estimate.high:.3g})"


def course_table(problem: str, courses: Courses, design: Design) -> Table:
    """A network: losses at equal Jacobians and at equal time, and how many times the reference's they are."""
    n, reference = design.jacobians, courses[REFERENCE]
    over = f"/ {REFERENCE}"
    columns = ("method", f"loss at {n} Jacobians", "CPU s", over, "loss at equal time", over, "error")
    rows: list[list[Cell]] = []
    for method, by_seed in courses.items():
        both = [(run, reference[seed]) for seed, run in by_seed.items() if seed in reference]
        counted: list[Cell] = ["-", "-", "-"]
        if counts_jacobians(method):
            loss, seconds = geometric([run.at_jacobians(n) for run, _ in both]), [run.seconds_at(n) for run, _ in both]
            counted = [loss, float(np.median(seconds)), interval(at_equal_jacobians(courses, method, design))]
        timed = geometric([run.at_seconds(other.seconds_at(n)) for run, other in both])
        error = float(np.median([run.error for run, _ in both]))
        rows.append([method, *counted, timed, interval(at_equal_time(courses, method, design)), error])
    note = (
        f"Geometric means over {len(reference)} seeds; ratios with 95 % intervals of paired seeds. Equal time: when"
        f" {REFERENCE} had computed its Jacobians. The error, a median, is the relative one of the solution at the end."
    )
    return Table(problem, problem, columns, rows, note)


def fit_table(problem: str, fits: Mapping[str, list[Outcome]]) -> Table:
    """A fit: the share of starts that were solved, and Jacobians."""
    rows: list[list[Cell]] = []
    for method, found in fits.items():
        estimate = jacobians_ratio(found, fits[PLAIN]) if PLAIN in fits else None
        compared = interval(estimate) if estimate is not None else "-"
        rows.append([method, len(found), share_solved(found), median_jacobians(found), compared])
    note = f"Solved: a loss of at most {SOLVED:g}. Jacobians: the median of solved starts; ratios over those of both."
    return Table(problem, problem, ("method", "starts", "solved", "Jacobians", f"/ {PLAIN}"), rows, note)


def regression_table(regressions: Mapping[str, list[Outcome]]) -> Table:
    """NIST's problems: the share that was solved, and which were not."""
    rows: list[list[Cell]] = []
    for method, found in regressions.items():
        missed = [f"{row.problem} ({row.start + 1})" for row in found if not row.solved]
        rows.append([method, len(found), share_solved(found), median_jacobians(found), ", ".join(missed) or "-"])
    note = f"Solved: all parameters to a relative error of {DIGITS:g}. In brackets: the start."
    columns = ("method", "problems and starts", "solved", "Jacobians", "not solved")
    return Table("nist", "NIST's nonlinear regressions", columns, rows, note)


def inference_table(trials: Sequence[Trial]) -> Table:
    """Variational inference: for every constant step, how many left the cone, and how many ended well."""
    near, rows = near_best(trials), list[list[Cell]]()
    for problem in LIKELIHOODS:
        for start in STARTS:
            for rule in OURS:
                group = [t for t in trials if (t.problem, t.start, t.rule) == (problem, start, rule)]
                if group:
                    by_rate = [[t for t in group if t.rate == rate] for rate in RATES]
                    cells = [
                        f"{sum(t.left for t in each)} / {sum(near[t] for t in each)} of {len(each)}" for each in by_rate
                    ]
                    rows.append([problem, start, rule, *cells])
    columns = ("likelihood", "start", "rule", *(f"step {rate:g}" for rate in RATES))
    note = f"Trials that left the cone / that ended within {NEAR:g} nats of the lowest loss found on the same data."
    return Table("variational", "Variational inference", columns, rows, note)


def tables_of(findings: Findings) -> list[Table]:
    """Make every table of what there is."""
    tables = [course_table(problem, courses, findings.design) for problem, courses in findings.courses.items()]
    tables += [fit_table(problem, fits) for problem, fits in findings.fits.items()]
    tables += [regression_table(findings.regressions)] if findings.regressions else []
    return [*tables, *([inference_table(findings.trials)] if findings.trials else [])]

"""Results of a study of residuals, made up so that the truth is known."""

from collections.abc import Sequence

from geonpg.scripts.least_squares.analysis import Findings
from geonpg.scripts.least_squares.course import Course
from geonpg.scripts.least_squares.design import Design
from geonpg.scripts.least_squares.pieces import Outcome
from geonpg.scripts.least_squares.variational import Trial

DESIGN = Design(jacobians=4)


def course(end: float, seconds: float) -> Course:
    """A course that has this loss after DESIGN's Jacobians, each of which halves it and takes so many seconds."""
    steps = range(3 * DESIGN.jacobians)
    return Course([*steps], [seconds * n for n in steps], [end * 2.0 ** (DESIGN.jacobians - n) for n in steps], 0.1)


def outcomes(jacobians: Sequence[int | None], problem: str = "three-exponentials") -> list[Outcome]:
    """The outcomes of starts: Jacobians that they took, None where they were not solved."""
    return [Outcome(problem, s, int(n is not None), n or 500, 0.0, 0.0) for s, n in enumerate(jacobians)]


def trial(rule: str, seed: int, loss: float = 5.0, left: int = 0) -> Trial:
    """A trial of variational inference from the wide start."""
    return Trial("robust", "wide", rule, 0.5, seed, left, 30, loss)


FINDINGS = Findings(
    DESIGN,
    {
        "poisson": {
            "ng": {seed: course(4.0 * 3**seed, 1.0) for seed in range(5)},
            "geo": {seed: course(3.0**seed, 1.5) for seed in range(5)},
            "adam": {seed: course(1e3 * 3.0**seed, 1.0) for seed in range(5)},
        }
    },
    {"three-exponentials": {"ng": outcomes([20, 40, 60, None]), "geo": outcomes([10, 20, 30, 40])}},
    {"geo": outcomes([5, 6], "Misra1a"), "scipy-lm": outcomes([5, None], "Misra1a")},
    [trial("ng", 1), trial("ng", 2, left=1), trial("geo", 1), trial("geo", 2)],
)

"""What `geonpg residuals` does with its arguments: the queue of its parts, then tables, figures and numbers."""

import json
import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tqdm import tqdm

from geonpg.errors import Refused, known, require
from geonpg.files import write_text
from geonpg.scripts.common.artifacts import Table, write_tables
from geonpg.scripts.common.locks import locked
from geonpg.scripts.common.parser import refuse
from geonpg.scripts.common.pin import pin
from geonpg.scripts.common.stopping import Signals
from geonpg.scripts.common.style import FORMATS, write_figure
from geonpg.scripts.jobs.child import worker_command
from geonpg.scripts.jobs.concluding import conclude
from geonpg.scripts.jobs.matrix import seeds_from
from geonpg.scripts.jobs.queue import LOCK_SECONDS
from geonpg.scripts.jobs.queue_local import LocalItem, LocalQueue
from geonpg.scripts.least_squares.analysis import numbers_of, read_findings
from geonpg.scripts.least_squares.design import ALL_PROBLEMS, DESIGN, QUICK, Design
from geonpg.scripts.least_squares.figures import course_figure
from geonpg.scripts.least_squares.methods import ALL_METHODS, REFERENCE
from geonpg.scripts.least_squares.pieces import Piece, pieces_of
from geonpg.scripts.least_squares.pinns import PINNS
from geonpg.scripts.least_squares.tables import tables_of

COMMAND = "geonpg residuals"
POLL_SECONDS = 0.5
CONFIRMING, EXPLORING = "0-9", "1000-1001"  # seeds: of the study, and of a quick look
NUMBERS = "numbers.json"
# numpy's own threads; on one core each, processor time is what a method costs
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Study:
    """What was asked for."""

    results: Path
    design: Design
    problems: Sequence[str]
    methods: Sequence[str]
    seeds: Sequence[int]

    def pieces(self, problem: str, seeds: Sequence[int]) -> list[Piece]:
        """Make the pieces of a problem."""
        return pieces_of(self.results, self.design, problem, self.methods, seeds)

    def parts(self) -> list[tuple[str, tuple[int, ...]]]:
        """Split the work over processes: problem and seeds of each. A network has one per seed."""
        one_by_one, together = [(seed,) for seed in self.seeds], [tuple(self.seeds)]
        return [(problem, s) for problem in self.problems for s in (one_by_one if problem in PINNS else together)]

    def item(self, problem: str, seeds: Sequence[int]) -> LocalItem:
        """Make the process of a part."""
        named = ["--results", str(self.results), "--problem", problem, "--methods", *self.methods]
        arguments = [*named, "--seeds", *map(str, seeds)]
        name = f"{problem}/{seeds[0]}" if problem in PINNS else problem
        return LocalItem(name, lambda: worker_command("least_squares.part", *arguments), lambda: None)


def study_from(arguments: Namespace) -> Study:
    """Check the arguments; raise Refused for what is wrong with them."""
    problems = [known("problem", name, ALL_PROBLEMS) for name in arguments.problems]
    methods = [known("method", name, ALL_METHODS) for name in arguments.methods]
    asked = {"width": arguments.width, "jacobians": arguments.jacobians}
    design = replace(
        QUICK if arguments.quick else Design(), **{key: value for key, value in asked.items() if value is not None}
    )
    fits = (
        design.parameters <= design.residuals
        or not {"scipy-lm", "scipy-lm-unscaled"} & set(methods)
        or not set(problems) & set(PINNS)
    )
    advice = f"leave it out of --methods, or choose a --width whose {design.parameters} parameters are fewer"
    require(fits, f"scipy-lm needs as many residuals as parameters, and there are {design.residuals}: {advice}")
    seeds = list(dict.fromkeys(seeds_from(arguments.seeds or (EXPLORING if arguments.quick else CONFIRMING))))
    ordered = [name for name in ALL_METHODS if name in (*methods, REFERENCE)]
    return Study(arguments.results, design, list(dict.fromkeys(problems)), ordered, seeds)


def execute(study: Study, jobs: int, signals: Signals) -> Mapping[str, str]:
    """Make every piece that is not complete, `jobs` processes at a time; return why some failed, by their names."""
    study.results.mkdir(parents=True, exist_ok=True)
    with locked(study.results, LOCK_SECONDS) as lock:
        pin(study.results / DESIGN, asdict(study.design), "use the same, or choose other --results")
        waiting = {part: study.pieces(*part) for part in study.parts()}
        left = [piece for pieces in waiting.values() for piece in pieces if not piece.is_complete]
        todo = [part for part, pieces in waiting.items() if any(piece in left for piece in pieces)]
        queue = LocalQueue([study.item(*part) for part in todo], jobs, lock)
        total = sum(map(len, waiting.values()))
        with tqdm(total=total, initial=total - len(left), unit=" runs", desc="residuals") as bar:

            def look() -> None:
                left[:] = [piece for piece in left if not piece.is_complete]
                bar.update(total - len(left) - bar.n)

            with patched_environment(ONE_THREAD):
                queue.work(signals, look, POLL_SECONDS)
            look()
        return queue.failed


@contextmanager
def patched_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for the processes that are started inside."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def report(study: Study) -> tuple[list[Table], dict[str, float]]:
    """Write the tables, figures and numbers of all that is in the folder; return tables and numbers."""
    require((study.results / DESIGN).exists(), f"{study.results} holds no study of residuals")
    pin(study.results / DESIGN, asdict(study.design), "use the same, or choose other --results")
    findings = read_findings(study.results, study.design)
    require(not findings.is_empty, f"{study.results} holds no results yet")
    tables, numbers = tables_of(findings), numbers_of(findings)
    write_tables(tables, study.results / "tables.md", "Residuals")
    write_text(study.results / NUMBERS, json.dumps(numbers, indent=1) + "\n")
    for problem, courses in findings.courses.items():
        for kind in FORMATS:
            write_figure(course_figure(problem, courses, study.design), study.results / f"{problem}.{kind}")
    return tables, numbers


def study_residuals(arguments: Namespace) -> int:
    """Run what is missing and report on all; return the command's exit code."""
    try:
        study = study_from(arguments)
    except Refused as error:
        return refuse(COMMAND, error)
    return conclude(COMMAND, arguments, lambda signals: execute(study, arguments.jobs, signals), lambda: report(study))

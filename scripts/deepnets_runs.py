"""One training run of `geonpg deepnets`: its rows, its file, and how it is stopped and continued."""

import csv
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from geonpg.kfac.cases import measure
from geonpg.scripts.artifacts import Table, replacing, write_text
from geonpg.scripts.deepnets_data import DataError
from geonpg.scripts.deepnets_methods import Method, Progress
from geonpg.scripts.deepnets_tasks import Experiment
from geonpg.scripts.stopping import listening

SAVE_EVERY = 60.0  # seconds: what an unkind end may lose
COLUMNS = ("update", "seconds", "cpu_seconds", "test_error", *(f.name for f in fields(Progress)))
Row = dict[str, float]


@dataclass
class Run:
    """The rows of one method, and what a state file must agree with."""

    name: str
    method: Method
    settings: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    def advance(self, experiment: Experiment) -> None:
        """One more row. Measuring the test error does not count as time; processor time is what the busy cores of a
        shared machine leave comparable."""
        wall, cpu = time.perf_counter(), time.process_time()
        progress = self.method.update()
        spent = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        total = {name: seconds + (self.rows[-1][name] if self.rows else 0.0) for name, seconds in spent.items()}
        problem = experiment.problem
        _, test = measure(problem.network, problem.family, experiment.test, self.method.y)
        numbers = {"update": len(self.rows) + 1, "test_error": test, **total, **asdict(progress)}
        self.rows.append({name: float(numbers[name]) for name in COLUMNS})


def csv_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.csv"


def state_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.state"


def save(run: Run, folder: Path) -> None:
    """The table for readers, and everything that the next update depends on; each whole or not at all."""
    rows = [[int(row["update"]), *(row[name] for name in COLUMNS[1:])] for row in run.rows]
    state = {"settings": run.settings, "rows": run.rows, "method": run.method.state_dict()}
    with replacing(state_path(folder, run.name)) as temporary:
        torch.save(state, temporary)
    write_text(csv_path(folder, run.name), Table(run.name, run.name, COLUMNS, rows).csv())


def resume(run: Run, folder: Path) -> None:
    """Continue from the state file, if there is one."""
    path = state_path(folder, run.name)
    if not path.exists():
        return
    try:
        state = torch.load(path, weights_only=True)
        settings, rows = state["settings"], state["rows"]
    except Exception as error:  # whatever a damaged file makes torch stumble on
        raise DataError(f"{str(path)!r} is damaged; remove it to start this run again") from error
    differ = [f"{k} {settings.get(k)} (now {v})" for k, v in run.settings.items() if settings.get(k) != v]
    if differ:
        raise DataError(f"{str(path)!r} is of another run, with {', '.join(differ)}; remove it or choose another --out")
    run.method.load_state_dict(state["method"])
    run.rows = rows


def train(run: Run, experiment: Experiment, updates: int, folder: Path, tick: Callable[[Run], None]) -> bool:
    """Train to that many updates; false if interrupted. Either way the state is on disk."""
    saved = time.monotonic()
    with listening() as interrupted:
        while len(run.rows) < updates and not interrupted():
            run.advance(experiment)
            tick(run)
            if time.monotonic() - saved > SAVE_EVERY:
                save(run, folder)
                saved = time.monotonic()
        save(run, folder)
        return not interrupted()


def read_rows(path: Path) -> list[Row]:
    """The rows of a run's table."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [{name: float(row[name]) for name in COLUMNS} for row in csv.DictReader(file)]
    except (KeyError, ValueError, OSError) as error:
        raise DataError(f"{str(path)!r} is damaged; remove it") from error


def first_at_or_below(rows: list[Row], level: float) -> float:
    """The first update whose training error is at most `level`; nan if none is."""
    return next((row["update"] for row in rows if row["train_error"] <= level), math.nan)

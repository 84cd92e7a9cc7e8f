"""One training run of `geonpg deepnets`: its rows, its files, and how it is stopped and continued."""

import csv
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from geonpg.agents.checkpoint import CheckpointError, read, write
from geonpg.files import write_text
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.stopping import AFTER_UPDATE, listening
from geonpg.scripts.common.timer import Timer
from geonpg.scripts.deep.data import DataError
from geonpg.scripts.deep.methods import Method, Progress
from geonpg.scripts.deep.tasks import Experiment

SAVE_EVERY = 5.0  # seconds: what an unkind end may lose, or one update if that takes longer
SETTINGS = "settings.json"  # in the folder, whose runs share them
COLUMNS = ("update", "seconds", "cpu_seconds", "test_error", *(f.name for f in fields(Progress)))
Row = dict[str, float]  # one update, by column


@dataclass
class DeepRun:
    """The training of one network by one method, and its rows so far."""

    name: str
    method: Method
    rows: list[Row] = field(default_factory=list)

    def advance(self, experiment: Experiment) -> None:
        """Make one update, and add its row.

        Measuring the test error does not count as time. Processor time stays comparable on a busy machine.
        """
        wall, cpu = time.perf_counter(), time.process_time()
        progress = self.method.update()
        spent = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        total = {name: seconds + (self.rows[-1][name] if self.rows else 0.0) for name, seconds in spent.items()}
        test = experiment.problem.evaluate(self.method.y, experiment.test).error
        numbers = {"update": len(self.rows) + 1, "test_error": test, **total, **asdict(progress)}
        self.rows.append({name: float(numbers[name]) for name in COLUMNS})


def csv_path(folder: Path, name: str) -> Path:
    """Return the file of a run's rows."""
    return folder / f"{name}.csv"


def state_path(folder: Path, name: str) -> Path:
    """Return the file that a run continues from."""
    return folder / f"{name}.state"


def save_run(run: DeepRun, folder: Path) -> None:
    """Write everything that the next update depends on, and the table for readers; each whole or not at all."""
    rows = [[int(row["update"]), *(row[name] for name in COLUMNS[1:])] for row in run.rows]
    write(state_path(folder, run.name), {"rows": run.rows, "method": run.method.state_dict()})
    write_text(csv_path(folder, run.name), Table(run.name, run.name, COLUMNS, rows).csv())


def restore_run(run: DeepRun, folder: Path, updates: int) -> None:
    """Continue from the state file; a table that is long enough needs none, and a shorter one without it is refused."""
    path, table = state_path(folder, run.name), csv_path(folder, run.name)
    if path.exists():
        try:
            state = read(path)
        except CheckpointError as error:
            raise DataError(f"{error}; remove it and {str(table)!r} to start this run again") from error
        run.method.load_state_dict(state["method"])
        run.rows = state["rows"]
    elif table.exists():
        run.rows = read_rows(table)
        if len(run.rows) < updates:
            missing = f"{str(table)!r} has {len(run.rows)} updates, and {path.name}, from which to go on, is missing"
            raise DataError(f"{missing}: remove it to start this run again, or choose another --out")


def train_run(
    run: DeepRun, experiment: Experiment, updates: int, folder: Path, tick: Callable[[DeepRun], None]
) -> bool:
    """Train to that many updates; return False if interrupted. Either way the state is on disk."""
    if len(run.rows) >= updates:
        return True
    saving = Timer()
    with listening(AFTER_UPDATE) as interrupted:
        while len(run.rows) < updates and not interrupted():
            run.advance(experiment)
            tick(run)
            if saving.is_due(SAVE_EVERY):
                save_run(run, folder)
                saving.restart()
        save_run(run, folder)
        return not interrupted()


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a run's table."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [{name: float(row[name]) for name in COLUMNS} for row in csv.DictReader(file)]
    except (KeyError, ValueError, OSError) as error:
        raise DataError(f"{str(path)!r} is damaged; remove it") from error


def first_at_or_below(rows: list[Row], level: float) -> float:
    """Return the first update whose training error is at most `level`; nan if none is."""
    return next((row["update"] for row in rows if row["train_error"] <= level), math.nan)

"""A run's folder: its files, their rows, and how they are read and written. No other module knows them.

config.toml   every setting             run.json          environment, seed, versions, git revision
curve.csv     the learning curve        evaluations.csv   deterministic evaluations
times.csv     seconds by phase          best.ckpt, final.ckpt   policies with their normalisation (not of baselines)
checkpoints/  the whole state           events.out.…      TensorBoard (not of baselines)
done.json     marks a run that `geonpg compare` has completed
"""

import csv
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from geonpg.configs import EARLIER, FIELDS, parse_toml
from geonpg.errors import Refused, require
from geonpg.files import write_text
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.pin import first_difference

CONFIG, FACTS, DONE = "config.toml", "run.json", "done.json"
BEST, FINAL = "best.ckpt", "final.ckpt"
CHECKPOINTS = "checkpoints"
NO_MATTER = ("description", "env_threads")  # in a config.toml: they change no result


class CurveRow(NamedTuple):
    """One row of the learning curve, after an update; NaN for what the algorithm does not report."""

    steps: int
    return_: float  # mean over the latest training episodes, as `length` is
    length: float
    kl: float
    entropy: float
    explained_variance: float
    value_loss: float
    rejected: float  # steps of the policy so far, a whole number


class Evaluation(NamedTuple):
    """The returns of deterministic episodes after so many steps."""

    steps: int
    mean: float
    std: float
    returns: list[float]


class Times(NamedTuple):
    """Seconds since the run began, in total and by phase; NaN for a phase that is not measured."""

    steps: int
    seconds: float
    rollout: float
    values: float
    policy: float
    critic: float
    evaluation: float


Row = TypeVar("Row", CurveRow, Evaluation, Times)


@dataclass(frozen=True)
class TableFile(Generic[Row]):
    """A CSV file in a run's folder with rows of one type."""

    name: str
    row: type[Row]

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.name}.csv"

    @property
    def columns(self) -> tuple[str, ...]:
        """Column titles: the fields of a row, where `return_` is called `return`."""
        return tuple(field.rstrip("_") for field in self.row._fields)

    def text(self, rows: Sequence[Row]) -> str:
        """Return the content of the file with these rows."""
        cells = [[" ".join(map(repr, cell)) if isinstance(cell, list) else cell for cell in row] for row in rows]
        return Table(self.name, self.name, self.columns, cells).csv()

    def write(self, folder: Path, rows: Sequence[Row]) -> None:
        """Write the file unless it already has this content."""
        if not holds(folder / self.file, self.text(rows).encode()):
            write_text(folder / self.file, self.text(rows))

    def read(self, folder: Path) -> list[Row]:
        """Read all rows; raise FileNotFoundError if there is no file, Refused if it is damaged."""
        return [self._parsed(cells) for cells in self._cells(folder)]

    def last(self, folder: Path) -> Row | None:
        """Read the last row; None if there is no readable one."""
        try:
            cells = self._cells(folder)
            return self._parsed(cells[-1]) if cells else None
        except (OSError, Refused):
            return None

    def has_rows(self, folder: Path) -> bool:
        """Return whether the file holds more than a heading."""
        path = folder / self.file
        return path.is_file() and len(path.read_bytes().splitlines()) > 1

    def _cells(self, folder: Path) -> list[dict[str, str]]:
        try:
            rows = csv.DictReader((folder / self.file).read_text(encoding="utf-8").splitlines())
            missing = [name for name in self.columns if name not in (rows.fieldnames or ())]
            require(not missing, f"{self.file} has no column {', '.join(missing)}")
            return list(rows)
        except UnicodeDecodeError:
            raise Refused(f"{self.file} is not UTF-8 text") from None
        except csv.Error as error:
            raise Refused(f"{self.file} has a row that is no row of numbers: {error}") from None

    def _parsed(self, cells: Mapping[str, str]) -> Row:
        kinds = get_type_hints(self.row).values()
        try:
            return self.row(*(parsed(cells[name], kind) for name, kind in zip(self.columns, kinds, strict=True)))
        except (AttributeError, TypeError, ValueError) as error:  # of a row that is too short, its cells are None
            raise Refused(f"{self.file} has a row that is no row of numbers: {error}") from None


def parsed(cell: str, kind: type) -> Any:
    """Parse a cell: a number, or a list of numbers."""
    return kind(cell) if kind in (int, float) else [float(number) for number in cell.split()]


CURVE = TableFile("curve", CurveRow)
EVALUATIONS = TableFile("evaluations", Evaluation)
TIMES = TableFile("times", Times)
TABLES = (CURVE.file, EVALUATIONS.file, TIMES.file)
COMPACT = (CONFIG, FACTS, *TABLES, DONE)  # what stays of a run that has ended
MADE = (BEST, FINAL, "events.out.*", ".*.tmp", f"{CHECKPOINTS}/step_*.ckpt", f"{CHECKPOINTS}/.step_*.tmp")


def holds(path: Path, data: bytes) -> bool:
    """Return whether a file exists with exactly these bytes."""
    return path.is_file() and path.read_bytes() == data


def read_config(folder: Path) -> dict[str, Any]:
    """Read the config.toml of a run; raise Refused if the folder has none."""
    try:
        return parse_toml((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{folder} is no run folder: {error}") from None


def config_difference(
    config: Mapping[str, Any], other: Mapping[str, Any], no_matter: Collection[str] = NO_MATTER
) -> str:
    """Describe the first setting in which two runs differ; empty if none does.

    A setting that one of them does not know has the value that runs had before it was introduced.
    """
    usual = {**{key: field.default for key, field in FIELDS.items()}, **EARLIER}
    return first_difference(config, other, no_matter, usual)


def require_state(folder: Path) -> None:
    """Refuse to resume a run that has results but no checkpoint, because it would start again and overwrite them."""
    ended = any((folder / name).exists() for name in (DONE, FINAL))
    require(not ended, f"{folder} has ended and holds its results only, no state to go on from: begin another run")
    begun = CURVE.has_rows(folder) or EVALUATIONS.has_rows(folder)
    require(not begun, f"{folder} holds a learning curve and no checkpoint to go on from: begin another run")


def is_done(folder: Path) -> bool:
    """Return whether `geonpg compare` has completed the run and its results are present."""
    return (folder / DONE).exists() and EVALUATIONS.has_rows(folder)


def has_lost_results(folder: Path) -> bool:
    """Return whether a completed run has lost its evaluations, with no checkpoint to restore them from."""
    return (folder / DONE).exists() and not is_done(folder) and not any(folder.glob(f"{CHECKPOINTS}/step_*.ckpt"))


def finish(folder: Path) -> None:
    """Mark the run in a folder as complete, and remove temporary folders that interrupted processes left beside it."""
    last = EVALUATIONS.last(folder)
    if last is None:
        raise Refused(f"{folder} has ended without an evaluation")
    write_text(folder / DONE, json.dumps({"steps": last.steps, "mean": last.mean}) + "\n")
    for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):
        rmtree(leftover, ignore_errors=True)


def compact(folder: Path) -> None:
    """Delete the models and checkpoints of a completed run; keep what reports need, and files that others put there."""
    for entry in [path for pattern in MADE for path in folder.glob(pattern)]:
        entry.unlink()
    with suppress(OSError):  # something else is in it, or it is not there
        (folder / CHECKPOINTS).rmdir()


def remove_leftovers(folder: Path) -> None:
    """Remove files that a killed process left half-written."""
    for leftover in [*folder.glob(".*.tmp"), *folder.glob(f"{CHECKPOINTS}/.*.tmp")]:
        leftover.unlink(missing_ok=True)


def inode(folder: Path) -> tuple[int, int] | None:
    """Return what tells a folder from another of the same name; None if it does not exist."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def require_home(folder: Path, home: tuple[int, int] | None) -> None:
    """Raise FileNotFoundError if the run's folder is not the one it began in: nothing saved there could be resumed."""
    if inode(folder) != home:
        raise FileNotFoundError("its folder was removed or replaced while it trained, so it cannot be saved")

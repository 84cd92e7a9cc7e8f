"""What branches leave: one row for each rule at each checkpoint, in <task>/<seed>.csv."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from geonpg.errors import Refused
from geonpg.files import write_text
from geonpg.scripts.common.artifacts import Table

# The rules that are compared, in the order of their rows, each with the settings that it changes in the preset.
BRANCH_RULES: Mapping[str, Mapping[str, Any]] = {
    "ng": {"method": "ng"},
    "mid": {"method": "mid"},
    "geo": {"method": "geo"},
    "geof": {"method": "geof"},
    "geo-published": {"method": "geo", "calibrate": False},
}


@dataclass(frozen=True)
class Branch:
    """What one rule made of one checkpoint."""

    steps: int  # of the trunk at the checkpoint
    rule: str
    score: float  # mean return of deterministic episodes after the last update
    surrogate: float  # held out, of all updates together
    first_surrogate: float  # of the first one
    kl_ratio: float  # actual over predicted, mean over updates
    kl_miss: float  # its distance from 1, mean over updates
    entropy: float  # change


COLUMNS = tuple(field.name for field in fields(Branch))


def rows_path(folder: Path, env_id: str, seed: int) -> Path:
    """The file of a trunk's rows."""
    return folder / env_id / f"{seed}.csv"


def read_rows(path: Path) -> list[Branch]:
    """Read the rows of a trunk, none before its first branch has ended; Refused if the file is damaged."""
    if not path.exists():
        return []
    numbers = COLUMNS[2:]
    found = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    try:
        return [Branch(int(row["steps"]), row["rule"], **{name: float(row[name]) for name in numbers}) for row in found]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{path} is no table of branches: {error!r}") from None


def write_rows(path: Path, rows: Sequence[Branch]) -> None:
    """Write all rows of a trunk, whole or not at all."""
    write_text(path, Table(path.stem, path.stem, COLUMNS, [list(asdict(row).values()) for row in rows]).csv())

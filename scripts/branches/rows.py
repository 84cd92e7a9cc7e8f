"""What branches leave: one row for each rule at each checkpoint, in <task>/<seed>.csv."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geonpg.scripts.common.records import read_records, write_records

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


def rows_path(folder: Path, env_id: str, seed: int) -> Path:
    """The file of a trunk's rows."""
    return folder / env_id / f"{seed}.csv"


def read_rows(path: Path) -> list[Branch]:
    """Read the rows of a trunk, none before its first branch has ended; Refused if the file is damaged."""
    return read_records(path, Branch, "branches")


def write_rows(path: Path, rows: Sequence[Branch]) -> None:
    """Write all rows of a trunk, whole or not at all."""
    write_records(path, Branch, rows)

"""What a map leaves: a row for each variant, batch and size of step at each checkpoint, in <task>/<seed>.csv."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from geonpg.scripts.common.records import read_records, write_records


@dataclass(frozen=True)
class Row:
    """One update from one batch at one checkpoint."""

    checkpoint: int  # updates of the trunk
    batch: int  # steps
    variant: str
    kl: float  # that was aimed at
    held_out: float  # gain in the surrogate on steps that it has not seen, in deviations of the advantage
    own: float  # on its own batch
    promised: float  # by the slope there, for the step that was taken
    actual_kl: float
    predicted_kl: float
    unseen_kl: float  # on steps that it has not seen
    tries: int  # lengths of the step after the first; for substeps, of all; for clipped minibatches, how many
    entropy: float  # change
    milliseconds: float


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a trunk; Refused if the file is damaged."""
    return read_records(path, Row, "updates")


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write all rows of a trunk, whole or not at all."""
    write_records(path, Row, rows)

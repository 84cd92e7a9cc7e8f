"""What a command leaves behind: tables and files, each written whole or not at all."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from math import floor, isfinite, log10
from pathlib import Path

from geonpg.errors import Refused
from geonpg.files import write_text

Cell = str | int | float
RUNS = Path("runs")  # where a command writes unless a folder is named; git ignores it, so nothing tracked is there


def read_text(path: Path, what: str) -> str:
    """Read a file that the user named; Refused, with what it should be, if it is no text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Refused(f"cannot read {what} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refused(f"cannot read {what} {path}: it is not UTF-8 text") from None


def file_name(env_id: str) -> str:
    """An environment's id as a part of paths, where no slash may stand."""
    return env_id.replace("/", "-")


@dataclass(frozen=True)
class Table:
    """Rows under named columns; `name` is the file's, `title` and `note` are the reader's."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def csv(self) -> str:
        """The table as CSV with every digit, for programs."""
        text = StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def markdown(self) -> str:
        """The table as Markdown with three digits, in aligned columns, for people."""
        cells = [list(self.columns), *([shown(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        rule = ["-" * width for width in widths]
        lines = ["| " + " | ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
        lines.insert(1, "|" + "|".join(f"-{dashes}-" for dashes in rule) + "|")
        return "\n".join([f"## {self.title}", "", *lines, *(["", self.note] if self.note else [])])


def markdown(tables: Iterable[Table]) -> str:
    """Every table, one below the other."""
    return "\n\n".join(table.markdown() for table in tables)


def write_tables(tables: Iterable[Table], path: Path, heading: str) -> None:
    """Write a page of tables for people, whole or not at all."""
    write_text(path, f"# {heading}\n\n{markdown(tables)}\n")


def shown(cell: Cell) -> str:
    """A cell for people: three digits of a float, anything else as it is."""
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def aligned(*values: float) -> list[str]:
    """Format numbers that are read together, all with the decimals that the largest needs for two to four digits."""
    size = max((abs(value) for value in values if isfinite(value)), default=0.0)
    decimals = 2 if size == 0 else 1 - floor(log10(size)) if size < 0.1 else 2 if size < 10 else 1 if size < 100 else 0
    return [f"{round(value, decimals) + 0.0:.{decimals}f}" for value in values]  # + 0.0: no "-0"


def number(value: float) -> str:
    """One number with two to four digits."""
    return aligned(value)[0]

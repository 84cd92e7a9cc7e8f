"""Tables of records on disk: a dataclass per row, in CSV, written whole or not at all."""

import csv
from collections.abc import Sequence
from dataclasses import Field, asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from geonpg.errors import Refused
from geonpg.files import write_text
from geonpg.scripts.common.artifacts import Table


class Record(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


R = TypeVar("R", bound=Record)


def read_records(path: Path, kind: type[R], what: str) -> list[R]:
    """Read the rows of a file, none if there is no file; Refused if it is damaged.

    kind: a dataclass whose fields are int, float or str.
    what: the rows' name in the message.
    """
    if not path.exists():
        return []
    columns: dict[str, Any] = {field.name: field.type for field in fields(kind)}
    try:
        found = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
        return [kind(**{name: form(row[name]) for name, form in columns.items()}) for row in found]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{path} is no table of {what}: {error!r}; move it away to make it anew") from None


def write_records(path: Path, kind: type[R], rows: Sequence[R]) -> None:
    """Write all rows, whole or not at all."""
    columns = [field.name for field in fields(kind)]
    values = [list(asdict(row).values()) for row in rows]
    write_text(path, Table(path.stem, path.stem, columns, values).csv())

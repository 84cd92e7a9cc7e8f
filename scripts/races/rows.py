"""The folder of an entry, one contestant on one task with one seed: `rows.csv`, and `race.json` beside it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from geonpg.cores import usable_cores
from geonpg.errors import Refused, require
from geonpg.files import write_text
from geonpg.scripts.common.records import read_records, write_records
from geonpg.scripts.runs.facts import is_texts, processor

ROWS, FACTS = "rows.csv", "race.json"
NEEDED = {"env": str, "contestant": str, "seed": int, "minutes": float, "config": dict, "machine": str}
OPTIONAL = {"versions": dict, "git": str, "others": float}


@dataclass(frozen=True)
class Row:
    """The evaluation of a policy after so many minutes of training."""

    minute: float  # that it stands for
    seconds: float  # of the clock, when the policy was taken
    steps: int
    mean: float  # of the returns
    std: float
    episodes: int


def entry_folders(root: Path) -> list[Path]:
    """Return the folders of all entries below the results, <task>/<who>/<minutes>/<seed>, damaged ones included."""
    return sorted({path.parent for name in (ROWS, FACTS) for path in root.glob(f"*/*/*/*/{name}")})


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of an entry so far; raise Refused if they are damaged."""
    rows = read_records(folder / ROWS, Row, "a race")
    finite = all(isfinite(number) for row in rows for number in (row.minute, row.seconds, row.mean, row.std))
    require(finite, f"{folder / ROWS} is damaged: a number is not finite; move it away to make it anew")
    return rows


def write_rows(folder: Path, rows: Sequence[Row]) -> None:
    """Write all rows of an entry, whole or not at all."""
    write_records(folder / ROWS, Row, rows)


def machine() -> str:
    """Describe this machine: its processor and the number of cores that we may use."""
    return f"{processor()}, {usable_cores()} cores"


def begin(folder: Path, facts: Mapping[str, Any]) -> None:
    """Begin an entry, anew if it was interrupted: a race against the clock cannot be resumed fairly."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ROWS).unlink(missing_ok=True)
    write_facts(folder, facts)


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write what an entry was made with."""
    write_text(folder / FACTS, json.dumps(facts, indent=1) + "\n")


def read_facts(folder: Path) -> dict[str, Any]:
    """Read what an entry was made with; raise Refused if the file is damaged."""
    path = folder / FACTS
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"{folder} is no entry of a race: {error}") from None
    require(isinstance(facts, dict), f"{path} is damaged: it must hold a JSON object")
    for key, kind in {**NEEDED, **OPTIONAL}.items():
        kinds = (int, float) if kind is float else kind
        holds = isinstance(facts.get(key), kinds) if key in facts else key in OPTIONAL
        require(holds, f"{path} is damaged: {key} must be like {kind()!r}")
    require(is_texts(facts.get("versions", {})), f"{path} is damaged: versions must be names and versions")
    return dict(facts)


def read_finished(folder: Path) -> tuple[dict[str, Any], list[Row]] | None:
    """Read the facts and the rows of an entry, unless it has not come to its end, or has lost its facts."""
    rows = read_rows(folder)
    if not rows or not (folder / FACTS).exists():
        return None
    facts = read_facts(folder)
    return (facts, rows) if rows[-1].minute == facts["minutes"] else None


def is_done(folder: Path) -> bool:
    """Return whether an entry has come to its end."""
    return read_finished(folder) is not None


def machines_by_race(made: Iterable[Mapping[str, Any]]) -> dict[tuple[str, float], set[str]]:
    """Return the machines that entries with these facts were made on, by the task and the minutes of their race."""
    found: dict[tuple[str, float], set[str]] = {}
    for facts in made:
        found.setdefault((facts["env"], float(facts["minutes"])), set()).add(facts["machine"])
    return found

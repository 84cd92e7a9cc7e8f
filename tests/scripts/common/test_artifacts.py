"""Tables as text, files that are written whole or not at all, and errors that name them."""

import csv
import errno
from io import StringIO
from pathlib import Path

import pytest

from geonpg.files import named, replacing, write_text
from geonpg.scripts.common.artifacts import Table, aligned, markdown, number, write_tables


def test_C10_an_error_names_the_file_that_was_meant(tmp_path: Path) -> None:
    """Not the temporary one beside it, and as text."""
    with pytest.raises(FileNotFoundError) as failure:
        write_text(tmp_path / "gone" / "curve.csv", "1")
    assert str(failure.value).endswith(f"No such file or directory: '{tmp_path / 'gone' / 'curve.csv'}'")
    full = OSError(errno.ENOSPC, "No space left on device")
    assert str(named(tmp_path, full)) == f"[Errno 28] No space left on device: '{tmp_path}'"
    full.filename = b"runs/events.out"
    assert str(named(tmp_path, full)) == "[Errno 28] No space left on device: 'runs/events.out'"
    assert str(named(tmp_path, OSError("its folder is gone"))) == "its folder is gone"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_table_keeps_every_digit_for_programs() -> None:
    table = Table("name", "Title", ("method", "value"), [["ng", 1 / 3]])
    assert next(csv.DictReader(StringIO(table.csv())))["value"] == str(1 / 3)
    assert "| ng     | 0.333 |" in table.markdown()


def test_a_page_of_tables_has_a_heading_and_all_of_them(tmp_path: Path) -> None:
    tables = [Table(name, name.title(), ("method", "value"), [["ng", 1]], note="As it is.") for name in ("one", "two")]
    write_tables(tables, tmp_path / "tables.md", "Both")
    text = (tmp_path / "tables.md").read_text()
    assert text == f"# Both\n\n{markdown(tables)}\n"
    assert [line for line in text.splitlines() if line.startswith("#")] == ["# Both", "## One", "## Two"]


def test_numbers_that_are_read_together_share_their_decimals() -> None:
    assert aligned(1234.5, -0.04) == ["1234", "0"]
    assert aligned(12.34, 5.0) == ["12.3", "5.0"]
    assert aligned(0.00123, 0.0) == ["0.0012", "0.0000"]
    assert (number(0.0), number(-0.0001)) == ("0.00", "-0.00010")

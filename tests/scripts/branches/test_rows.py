"""Rows of branches on disk."""

from pathlib import Path

import pytest
from tiny_branches import branch_row

from geonpg.errors import Refused
from geonpg.scripts.branches.rows import BRANCH_RULES, read_rows, rows_path, write_rows


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = rows_path(tmp_path, "Hopper-v4", 1000)
    assert read_rows(path) == []
    path.parent.mkdir()
    rows = [branch_row(rule, 1 / 3, 0.1, 512) for rule in BRANCH_RULES]
    write_rows(path, rows)
    assert read_rows(path) == rows


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "steps,rule\n1,ng\n", "steps,rule,score\nmany,ng,1\n"])
def test_a_damaged_table_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "1000.csv").write_text(text)
    with pytest.raises(Refused, match=r"1000\.csv is no table of branches"):
        read_rows(tmp_path / "1000.csv")

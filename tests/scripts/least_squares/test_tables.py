"""The tables that people read."""

from made_up_findings import FINDINGS

from geonpg.scripts.common.artifacts import markdown
from geonpg.scripts.least_squares.tables import tables_of


def test_every_finding_has_a_table() -> None:
    tables = {table.name: table for table in tables_of(FINDINGS)}
    assert list(tables) == ["poisson", "three-exponentials", "nist", "variational"]
    rows = {str(row[0]): row for row in tables["poisson"].rows}
    assert rows["ng"][3] == "4 (4 to 4)"
    assert rows["geo"][3] == rows["geo"][5] == "1 (1 to 1)"
    assert rows["adam"][1:4] == ["-", "-", "-"]
    (scipy,) = (row for row in tables["nist"].rows if row[0] == "scipy-lm")
    assert scipy[-1] == "Misra1a (2)"
    (ng,) = (row for row in tables["variational"].rows if row[2] == "ng")
    assert "1 / 1 of 2" in ng


def test_tables_can_be_printed() -> None:
    assert "nan" not in markdown(tables_of(FINDINGS))

"""Trunks of a map: rows that survive a stop, and that do not depend on who was before."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_maps import write_grid

from geonpg.scripts.branches.rows import rows_path
from geonpg.scripts.maps.rows import Row, read_rows
from geonpg.scripts.maps.trunk import GRID, grow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_grid(tmp_path)


def timeless(rows: list[Row]) -> list[Row]:
    return [replace(row, milliseconds=0.0) for row in rows]


def test_a_stopped_trunk_goes_on_as_if_nothing_had_been(folder: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / GRID).write_text((folder / GRID).read_text())
    assert grow(whole, "Reacher-v4", 3000, lambda: False)
    looks = iter(range(1000))
    for patience in (1, 3, 4):
        end = next(looks) + patience
        assert not grow(folder, "Reacher-v4", 3000, lambda end=end: next(looks) > end)
    assert grow(folder, "Reacher-v4", 3000, lambda: False)
    rows = read_rows(rows_path(folder, "Reacher-v4", 3000))
    assert timeless(rows) == timeless(read_rows(rows_path(whole, "Reacher-v4", 3000)))
    assert not list(folder.glob("*/*.state"))
    assert len(rows) == 2 * 2 * 2 * 2
    assert {row.checkpoint for row in rows} == {1, 2}
    assert all(row.actual_kl == pytest.approx(row.kl, rel=0.02) for row in rows)
    assert all(row.own > 0 for row in rows)

"""The folder of an entry: written whole, begun anew, done at its end only."""

from pathlib import Path
from typing import Any

import pytest
from tiny_races import write_entry

from geonpg.errors import Refused
from geonpg.scripts.races.course import Entry
from geonpg.scripts.races.rows import FACTS, ROWS, begin, entry_folders, is_done, read_facts, read_rows, write_facts

ENTRY = Entry("Hopper-v4", "sac", 3, 2.0)


def test_rows_come_back_and_the_last_one_makes_an_entry_done(tmp_path: Path) -> None:
    folder = write_entry(tmp_path, ENTRY, {1.0: 12.5})
    assert not is_done(folder)
    write_entry(tmp_path, ENTRY, {1.0: 12.5, 2.0: 1e-7})
    assert is_done(folder)
    assert [(row.minute, row.mean) for row in read_rows(folder)] == [(1, 12.5), (2, 1e-7)]
    assert (folder / ROWS).read_text().splitlines()[0] == "minute,seconds,steps,mean,std,episodes"
    assert sorted(path.name for path in folder.iterdir()) == sorted([FACTS, ROWS])


def test_an_entry_that_was_interrupted_begins_without_its_rows(tmp_path: Path) -> None:
    folder = write_entry(tmp_path, ENTRY, {1.0: 12.5})
    begin(folder, read_facts(folder))
    assert read_rows(folder) == []
    assert not is_done(folder)
    assert not is_done(tmp_path / "nowhere")


def test_an_entry_that_has_lost_a_file_is_found_and_not_done(tmp_path: Path) -> None:
    for lost, seed in ((FACTS, 0), (ROWS, 1)):
        folder = write_entry(tmp_path, Entry("Hopper-v4", "sac", seed, 2.0), {2.0: 1.0})
        (folder / lost).unlink()
        assert not is_done(folder)
        assert folder in entry_folders(tmp_path)


@pytest.mark.parametrize("mean", [float("nan"), float("inf")])
def test_a_return_that_is_not_finite_is_refused(mean: float, tmp_path: Path) -> None:
    folder = write_entry(tmp_path, ENTRY, {1.0: mean, 2.0: 1.0})
    with pytest.raises(Refused, match=r"rows.csv is damaged: a number is not finite; move it away"):
        read_rows(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is no entry of a race"), ("[]", "must hold a JSON object"), ('{"env": 3}', "env must be like ''")],
)
def test_a_damaged_file_is_refused(text: str, said: str, tmp_path: Path) -> None:
    folder = write_entry(tmp_path, ENTRY, {2.0: 1.0})
    (folder / FACTS).write_text(text)
    with pytest.raises(Refused, match=said):
        is_done(folder)


@pytest.mark.parametrize(
    "damage", [{"versions": None}, {"versions": {"torch": [1]}}, {"git": [1]}, {"others": None}], ids=repr
)
def test_damage_to_what_need_not_be_there_is_refused(damage: dict[str, Any], tmp_path: Path) -> None:
    folder = write_entry(tmp_path, ENTRY, {2.0: 1.0})
    write_facts(folder, {**read_facts(folder), **damage})
    with pytest.raises(Refused, match=f"is damaged: {next(iter(damage))} must be"):
        read_facts(folder)


def test_damaged_rows_are_refused(tmp_path: Path) -> None:
    folder = write_entry(tmp_path, ENTRY, {2.0: 1.0})
    (folder / ROWS).write_text("minute,seconds\n1,2\n")
    with pytest.raises(Refused, match="is no table of a race"):
        is_done(folder)

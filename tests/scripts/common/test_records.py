"""Records on disk."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from geonpg.errors import Refused
from geonpg.scripts.common.records import read_records, write_records


@dataclass(frozen=True)
class Fruit:
    name: str
    count: int
    weight: float


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    fruits = [Fruit("apple, red", 3, 1 / 3), Fruit("pear", 0, float("inf"))]
    write_records(tmp_path / "fruits.csv", Fruit, fruits)
    assert read_records(tmp_path / "fruits.csv", Fruit, "fruits") == fruits
    assert read_records(tmp_path / "none.csv", Fruit, "fruits") == []
    assert (tmp_path / "fruits.csv").read_text().startswith("name,count,weight\n")


@pytest.mark.parametrize("text", [b"name,count\na,1\n", b"name,count,weight\na,many,1\n", b"name\xff,count\n"])
def test_a_damaged_file_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "fruits.csv").write_bytes(text)
    with pytest.raises(Refused, match=r"fruits\.csv is no table of fruits"):
        read_records(tmp_path / "fruits.csv", Fruit, "fruits")

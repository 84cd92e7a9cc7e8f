"""What a folder's results were made with, and what is said where that is something else."""

from pathlib import Path

import pytest

from geonpg.errors import Refused
from geonpg.scripts.common.pin import first_difference, pin, pin_text


def test_the_first_difference_is_said() -> None:
    one, two = {"a": 1, "b": 2, "c": [3]}, {"a": 1, "b": 4, "c": [5]}
    assert first_difference(one, dict(reversed(one.items()))) == ""
    assert first_difference(one, two) == "b (2 and 4)"
    assert first_difference(one, two, no_matter=["b"]) == "c ([3] and [5])"
    assert first_difference({"a": 1}, one) == "b (None and 2)"
    assert first_difference({"a": 1}, one, usual={"b": 2, "c": [3]}) == ""


def test_the_same_settings_are_taken_and_others_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    pin(path, {"sizes": (1, 2), "seed": 0, "count": 3}, "choose another")
    before = path.read_text()
    pin(path, {"sizes": [1, 2], "seed": 0, "count": 3}, "choose another")
    with pytest.raises(Refused) as refused:
        pin(path, {"sizes": (1, 2), "seed": 1, "count": 4}, "choose another")
    assert str(refused.value) == f"{tmp_path} was made with other settings, seed (0 and 1): choose another"
    assert path.read_text() == before
    pin(path, {"sizes": (1, 2), "seed": 0, "count": 4}, "choose another", no_matter=["count"])
    assert '"count": 4' in path.read_text()


@pytest.mark.parametrize("text", ["{", "[]", "3", ""])
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(Refused, match=r"settings.json is damaged: .*; choose another"):
        pin(tmp_path / "settings.json", {}, "choose another")
    assert (tmp_path / "settings.json").read_text() == text


def test_a_text_is_compared_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    pin_text(path, "a = 1\nb = 2\n", "choose another")
    pin_text(path, "a = 1\nb = 2\n", "choose another")
    for other, words in {"a = 1\nb = 3\n": "'b = 2' and 'b = 3'", "a = 1\n": "one of which ends earlier"}.items():
        with pytest.raises(Refused) as refused:
            pin_text(path, other, "choose another")
        assert str(refused.value) == f"{tmp_path} was made with other settings, {words}: choose another"

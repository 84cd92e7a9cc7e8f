"""Files that are written whole or not at all."""

import os
from pathlib import Path

import pytest

from geonpg.files import replacing, write_bytes, write_text


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    write_text(tmp_path / "a.txt", "né")
    write_bytes(tmp_path / "a.bin", b"\0\1", durable=True)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "né"
    assert (tmp_path / "a.bin").read_bytes() == b"\0\1"
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "a.bin"}


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_the_old_file_alone(error: type[BaseException], tmp_path: Path) -> None:
    def fail() -> None:
        with replacing(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
            raise error

    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(error):
        fail()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_an_error_names_the_file_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"missing/a\.txt'$"):
        write_text(tmp_path / "missing" / "a.txt", "text")


def test_a_durable_file_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file, its new name, and the folder that holds the name, in this order."""
    done: list[str] = []
    sync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append(os.readlink(f"/proc/self/fd/{file}")), sync(file)))
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("renamed"), rename(a, b)))
    write_bytes(tmp_path / "a.bin", b"data", durable=True)
    assert done == [f"{tmp_path}/.a.bin.{os.getpid()}.tmp", "renamed", str(tmp_path)]
    done.clear()
    write_bytes(tmp_path / "a.bin", b"data")
    assert done == ["renamed"]

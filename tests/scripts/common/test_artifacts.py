"""Files that are written whole or not at all, and errors that name them."""

import errno
from pathlib import Path

import pytest

from geonpg.files import named, write_text


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

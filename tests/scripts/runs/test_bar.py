"""The bar of `geonpg train` on a terminal of 80 columns."""

import os
import pty
import re
import sys
import termios
import threading
from pathlib import Path

import pytest

from geonpg.scripts import train

TINY = [
    "--env",
    "InvertedDoublePendulum-v4",
    "--n-envs",
    "4",
    "--set=n_steps=16",
    "--set=hidden=8",
    "--set=eval_episodes=2",
]


def shown_on(columns: int, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `train` writes to a terminal that wide, a line for every time the bar is drawn."""
    reader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    chunks: list[bytes] = []

    def drain() -> None:
        while not chunks or b"\0" not in chunks[-1]:
            chunks.append(os.read(reader, 1024))

    draining = threading.Thread(target=drain)
    draining.start()
    with os.fdopen(terminal, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        assert train.main(arguments) == 0
        screen.write("\0")
        screen.flush()
        draining.join()
    os.close(reader)
    return [line for line in re.split(r"[\r\n]+", b"".join(chunks).decode().rstrip("\0")) if line.strip()]


def test_the_bar_fits_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    lines = shown_on(80, [*TINY, "--steps", "512", "--folder", str(folder)], monkeypatch)
    assert f"training in {folder}" in lines
    assert all(len(line) <= 80 for line in lines if "%|" in line)
    wanted = r"100%\|█{10,}\| 512/512 steps, [\d.]+k?/s, return \d+\.\d, 00:00 left"
    assert re.fullmatch(wanted, lines[-1].strip())


def test_a_wide_bar_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, last = shown_on(200, [*TINY, "--steps", "64", "--folder", str(tmp_path / "run")], monkeypatch)
    assert re.search(r"64.0/64.0 steps, .*/s, return .*, 00:00 left", last)
    assert 150 < len(last) <= 200

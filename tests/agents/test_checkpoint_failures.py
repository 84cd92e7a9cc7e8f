"""A damaged file is found, a failing write costs no earlier one, and a folder of checkpoints survives both."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from geonpg.agents import checkpoint
from geonpg.agents.checkpoint import CheckpointError, Checkpoints, read, write

SMALL = {"step": 3, "weights": np.arange(6.0).reshape(2, 3), "generator": torch.arange(5, dtype=torch.uint8), "lr": 0.1}


def broken(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as error:
        read(path)
    assert str(path) in str(error.value)
    return str(error.value)


def test_every_truncation_is_found(tmp_path: Path) -> None:
    write(tmp_path / "a.ckpt", SMALL)
    data = (tmp_path / "a.ckpt").read_bytes()
    for length in range(len(data)):
        assert "truncated or damaged" in broken(tmp_path / "a.ckpt", data[:length])
    assert "truncated or damaged" in broken(tmp_path / "a.ckpt", data + b"\n")


def test_a_flipped_bit_is_found_in_every_byte(tmp_path: Path) -> None:
    write(tmp_path / "a.ckpt", SMALL)
    data = (tmp_path / "a.ckpt").read_bytes()
    for place, bit in enumerate(np.random.default_rng(0).integers(0, 8, len(data))):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(bit)
        assert "truncated or damaged" in broken(tmp_path / "a.ckpt", bytes(flipped))


def test_foreign_files_are_told_from_damaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    np.savez(tmp_path / "a.npz", weights=np.arange(3))
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    for data in (b"hello", b"\0" * 1000, (tmp_path / "a.npz").read_bytes(), (tmp_path / "a.pt").read_bytes()):
        assert "is not a geonpg checkpoint" in broken(path, data)


def test_another_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", 12)
        write(tmp_path / "a.ckpt", SMALL)
    with pytest.raises(CheckpointError, match=r"a\.ckpt was written by format version 12, and this version reads 1$"):
        read(tmp_path / "a.ckpt")


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a\.ckpt does not exist"):
        read(tmp_path / "a.ckpt")
    with pytest.raises(CheckpointError, match="cannot be read: Is a directory"):
        read(tmp_path)


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "taken").mkdir()
    for path in (tmp_path / "file" / "a.ckpt", tmp_path / "missing" / "a.ckpt", tmp_path / "taken"):
        with pytest.raises(OSError, match=str(path)):
            write(path, SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]


def run(script: str, folder: Path) -> None:
    """The script in a process of its own, where limits and signals hurt nobody else."""
    done = subprocess.run(
        [sys.executable, "-c", script, folder], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from geonpg.agents.checkpoint import read, write
path = Path(sys.argv[1]) / "a.ckpt"
write(path, {"a": 1})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write(path, {"a": np.zeros(1_000_000)})
except OSError as error:
    assert error.filename == str(path)
    assert read(path) == {"a": 1}
else:
    sys.exit("nothing was raised")
"""

KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from geonpg.agents.checkpoint import Checkpoints, read
run = Checkpoints(Path(sys.argv[1]))
run.save(1, {"step": 1, "numbers": np.full(250_000, 1)})
attempts, amid, newest = 0, 0, 1
while attempts < 10 or amid < 2 or newest == 1:  # until some were killed amid a write, and some went on
    attempts += 1
    child = os.fork()
    if not child:
        for step in range(newest + 1, newest + 1000):
            run.save(step, {"step": step, "numbers": np.full(250_000, step)})
        os._exit(0)
    time.sleep(random.uniform(0.02, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    amid += bool(list(run.folder.glob(".*.tmp")))
    for path in run.paths():
        state = read(path)
        assert (state["numbers"] == state["step"]).all() and len(state["numbers"]) == 250_000
    found = run.latest()
    assert found and found[1]["step"] >= newest
    newest = found[1]["step"]
run.save(newest + 1, {})
assert len(list(run.folder.iterdir())) == 2
"""


def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path) -> None:
    run(FULL_DISK, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.ckpt"]


def test_a_killed_process_leaves_the_earlier_files(tmp_path: Path) -> None:
    run(KILLED, tmp_path)


def steps(run: Checkpoints) -> list[int]:
    return [int(path.stem.removeprefix("step_")) for path in run.paths()]


def test_the_newest_stay(tmp_path: Path) -> None:
    run = Checkpoints(tmp_path / "new" / "folder", keep=2)
    assert run.latest() is None
    for step in (0, 5, 123456, 10**13):
        assert run.save(step, {"step": step}).name == f"step_{step:012d}.ckpt"
        assert run.latest() == (run.paths()[-1], {"step": step})
    assert steps(run) == [123456, 10**13]


def test_damaged_checkpoints_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Checkpoints(tmp_path, keep=3)
    first, second, third = (run.save(step, {"step": step}) for step in (1, 2, 3))
    third.write_bytes(third.read_bytes()[:-1])
    second.write_bytes(b"something else")
    with caplog.at_level(logging.WARNING):
        assert run.latest() == (first, {"step": 1})
    assert [record.message.split(";")[0] for record in caplog.records] == [
        f"{third} is truncated or damaged: its checksum does not fit",
        f"{second} is not a geonpg checkpoint",
    ]
    first.write_bytes(b"")
    with pytest.raises(CheckpointError, match="holds no readable checkpoint") as error:
        run.latest()
    assert all(str(path) in str(error.value) for path in (first, second, third))
    assert steps(run) == [1, 2, 3]


def test_after_going_back_the_new_ones_count(tmp_path: Path) -> None:
    """The damaged one ahead does not take the place of a good one."""
    run = Checkpoints(tmp_path, keep=2)
    run.save(90, {})
    run.save(100, {}).write_bytes(b"")
    run.save(95, {})
    assert steps(run) == [90, 95, 100]
    run.save(100, {"whole": True})
    assert steps(run) == [95, 100]
    assert run.latest() == (run.paths()[-1], {"whole": True})


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    names = {"step_1.ckpt", "step_000000000001.ckpt.bak", "model.zip", ".hidden.tmp", "best.ckpt"}
    for name in names:
        (tmp_path / name).write_text("mine")
    run = Checkpoints(tmp_path, keep=1)
    assert run.latest() is None
    path = run.save(2, {})
    assert {path.name for path in tmp_path.iterdir()} == names | {path.name}


def test_wrong_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep must be 1 or more checkpoints, not 0"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ValueError, match="step must be 0 or more, not -1"):
        Checkpoints(tmp_path).save(-1, {})

"""Data that are read from a folder, and what is said when they are missing or damaged."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from geonpg.scripts.deep.data import FACES_FILE, MNIST_FILES, DataError, centred_mnist, faces, mnist, read_idx
from geonpg.scripts.deep.drawn import SIDE


def write_idx(folder: Path, name: str, array: np.ndarray, zipped: bool) -> None:
    raw = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    path = folder / (f"{name}.gz" if zipped else name)
    path.write_bytes(gzip.compress(raw) if zipped else raw)


def fake_mnist(folder: Path, zipped: bool = False) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (30, SIDE, SIDE), dtype=np.uint8)
    for pixels, labels in MNIST_FILES.values():
        write_idx(folder, pixels, images, zipped)
        write_idx(folder, labels, np.arange(30) % 10, zipped)
    return images


@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_is_read_plain_and_gzipped(tmp_path: Path, zipped: bool) -> None:
    images = fake_mnist(tmp_path, zipped)
    split = mnist(tmp_path, 20, 10, 0)
    assert split.train.shape == (20, 784)
    known = {row.tobytes(): k % 10 for k, row in enumerate(images.reshape(30, -1) / np.float32(255))}
    assert split.train_labels is not None
    assert [known[row.tobytes()] for row in split.train] == split.train_labels.tolist()
    centred = centred_mnist(tmp_path, 20, 10, 0).train
    assert np.abs(centred.mean(0)).max() < 1e-5
    assert centred.std() == pytest.approx(1, abs=1e-3)


def test_faces_keep_people_apart(tmp_path: Path) -> None:
    """Every photograph is filled with the number of its person, and so is every patch."""
    people = np.repeat(np.arange(40), 10)
    savemat(tmp_path / FACES_FILE, {"faces": np.broadcast_to(people, (4096, 400)).astype(np.uint8)})
    split = faces(tmp_path, 60, 30, 0)
    scale = (np.ptp(split.train[:, 0])) / (np.ptp(np.unique(split.train[:, 0])))
    assert scale == pytest.approx(1)
    assert split.train.shape == (60, 625)
    assert len(np.unique(split.test[:, 0].round(4))) <= 10
    assert split.test.min() > split.train.max(), "the last ten people come after the first twenty-five"


def test_missing_or_damaged_mnist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no train-images-idx3-ubyte"):
        mnist(tmp_path, 20, 10, 0)
    fake_mnist(tmp_path)
    path = tmp_path / MNIST_FILES["train"][0]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match="damaged"):
        mnist(tmp_path, 20, 10, 0)
    path.unlink()
    path.with_name(f"{path.name}.gz").write_bytes(b"\x1f\x8b cut off")
    with pytest.raises(DataError, match="damaged"):
        mnist(tmp_path, 20, 10, 0)
    (tmp_path / "short").write_bytes(b"\0")
    with pytest.raises(DataError, match="damaged"):
        read_idx(tmp_path, "short")


def test_missing_or_damaged_faces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=FACES_FILE):
        faces(tmp_path, 20, 10, 0)
    (tmp_path / FACES_FILE).write_bytes(b"MATLAB 5.0, not really")
    with pytest.raises(DataError, match="damaged"):
        faces(tmp_path, 20, 10, 0)

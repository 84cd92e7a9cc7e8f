"""The data of `geonpg deepnets`: drawn by us, or read from a folder. Nothing is downloaded."""

import gzip
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat
from scipy.ndimage import affine_transform

from geonpg.errors import Refused
from geonpg.scripts.deep.drawn import FACE_SIDE, SIDE, Images, Labels, blobs, curves, digits

MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
FACES_FILE = "olivettifaces.mat"
PHOTOGRAPHS, PHOTOGRAPH_SIDE, PER_PERSON = 400, 64, 10


class DataError(Refused):
    """Data or settings of `geonpg deepnets` that are missing, damaged or at odds."""


@dataclass(frozen=True)
class Split:
    """Images [cases, pixels], and a class per image where there is one."""

    train: Images
    test: Images
    train_labels: Labels | None = None
    test_labels: Labels | None = None


def read_idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """Read an IDX file of bytes, plain or gzipped."""
    paths = [folder / name, folder / f"{name}.gz"]
    path = next((p for p in paths if p.is_file()), None)
    if path is None:
        raise DataError(f"MNIST needs the four IDX files, plain or gzipped, in the folder {str(folder)!r}: no {name}")
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zeros, kind, dimensions = struct.unpack_from(">HBB", raw)
        shape = struct.unpack_from(f">{dimensions}I", raw, 4)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise DataError(f"{str(path)!r} is damaged or not an IDX file: {error}") from error
    body = raw[4 + 4 * dimensions :]
    if (zeros, kind) != (0, 8) or len(body) != np.prod(shape, dtype=np.int64):
        raise DataError(f"{str(path)!r} is damaged or not an IDX file of bytes: its size is not what its header says")
    return np.frombuffer(body, np.uint8).reshape(shape)


def mnist_part(folder: Path, part: str) -> tuple[Images, Labels]:
    """Read the images and labels of "train" or "test"."""
    images, labels = (read_idx(folder, name) for name in MNIST_FILES[part])
    if images.ndim != 3 or images.shape[1:] != (SIDE, SIDE) or labels.shape != images.shape[:1]:
        raise DataError(f"the MNIST {part} files in {str(folder)!r} do not hold {SIDE}x{SIDE} images and their labels")
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255), labels.astype(np.int64)


def pick(images: Images, labels: Labels, cases: int, seed: int) -> tuple[Images, Labels]:
    """Draw that many cases in random order; all of them if there are fewer."""
    order = np.random.default_rng(seed).permutation(len(images))[:cases]
    return images[order], labels[order]


def mnist(folder: Path | None, train: int, test: int, seed: int) -> Split:
    """Read MNIST from the folder; without one, draw the stand-in."""
    if folder is None:
        (x, t), (y, u) = digits(train, seed), digits(test, seed + 1)
    else:
        (x, t), (y, u) = (
            pick(*mnist_part(folder, part), cases, seed) for part, cases in (("train", train), ("test", test))
        )
    return Split(x, y, t, u)


def centred_mnist(folder: Path | None, train: int, test: int, seed: int) -> Split:
    """Standardise MNIST for the classifier: zero mean per pixel and one global scale, from the training images."""
    split = mnist(folder, train, test, seed)
    return Split(*standardised(split.train, split.test), split.train_labels, split.test_labels)


def standardised(train: Images, test: Images) -> tuple[Images, Images]:
    """Take out the training images' mean per pixel and overall scale."""
    mean = train.mean(0)
    scale = (train - mean).std()
    return (train - mean) / scale, (test - mean) / scale


def curve_images(folder: Path | None, train: int, test: int, seed: int) -> Split:
    """Draw CURVES; the folder is not read."""
    images = curves(train + test, seed)
    return Split(images[:train], images[train:])


def photographs(folder: Path) -> NDArray[np.float64]:
    """Read the Olivetti faces [400, 64, 64], ten of each of forty people in order."""
    path = folder / FACES_FILE
    if not path.is_file():
        raise DataError(f"FACES needs the file {FACES_FILE} (Olivetti faces) in the folder {str(folder)!r}")
    try:
        faces = np.asarray(loadmat(path)["faces"])
    except Exception as error:  # loadmat raises whatever its reader stumbles on
        raise DataError(f"{str(path)!r} is damaged or has no matrix 'faces': {error}") from error
    if faces.shape != (PHOTOGRAPH_SIDE**2, PHOTOGRAPHS):
        raise DataError(f"{str(path)!r} is damaged: 'faces' is {faces.shape}, not {(PHOTOGRAPH_SIDE**2, PHOTOGRAPHS)}")
    columns = faces.T.reshape(PHOTOGRAPHS, PHOTOGRAPH_SIDE, PHOTOGRAPH_SIDE)
    return columns.transpose(0, 2, 1).astype(float)  # Matlab stores columns first


def patches(pictures: NDArray[np.float64], cases: int, seed: int) -> Images:
    """Cut patches around the pictures' centres: turned by up to 90 degrees, scaled by 1.4 to 1.8, subsampled."""
    generator = np.random.default_rng(seed)
    images = np.empty((cases, FACE_SIDE**2), np.float32)
    centre, middle = (PHOTOGRAPH_SIDE - 1) / 2, (FACE_SIDE - 1) / 2
    for case in range(cases):
        angle, scale = np.radians(generator.uniform(-90, 90)), generator.uniform(1.4, 1.8)
        picture = pictures[generator.integers(len(pictures))]
        # a pixel of the patch is two pixels of the enlarged picture wide
        turn = 2 / scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        offset = centre + generator.uniform(-2, 2, 2) - turn @ [middle, middle]
        patch = affine_transform(picture, turn, offset, (FACE_SIDE, FACE_SIDE), order=1, mode="nearest")
        images[case] = patch.reshape(-1)
    return images


def faces(folder: Path | None, train: int, test: int, seed: int) -> Split:
    """Cut patches of people 1 to 25 for training and of the last 10 for test; without a folder, draw the stand-in."""
    if folder is None:
        return Split(*standardised(blobs(train, seed), blobs(test, seed + 1)))
    pictures = photographs(folder)
    ours, others = pictures[: 25 * PER_PERSON], pictures[-10 * PER_PERSON :]
    return Split(*standardised(patches(ours, train, seed), patches(others, test, seed + 1)))

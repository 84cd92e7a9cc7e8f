"""The whole state of a run, to one file and back, bit for bit; nothing in it is pickled.

A checkpoint is an uncompressed zip file, which `numpy.load` opens too:

    format         says "geonpg checkpoint"
    state.json     the state's structure and its plain values
    arrays.bin     the bytes of all arrays, end to end: a zip entry for each would take most of the time
    zip comment    the format's version, and the SHA-256 of every byte before it

In `state.json` an object whose one key starts with "$" stands for what JSON lacks (see `Packer.pack`), for example
`{"$array": [dtype, shape, order of the dimensions in memory, first byte in arrays.bin]}`.
"""

import hashlib
import json
import logging
import math
import os
import re
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geonpg.kfac.choice import require

State = Mapping[str, Any]
Array = NDArray[Any]

log = logging.getLogger(__name__)

NAME, VERSION = "geonpg checkpoint", 1
MARK, MANIFEST, ARRAYS = "format", "state.json", "arrays.bin"
# The last bytes of a file of any version; only the digest itself is not under the checksum.
DIGEST_LENGTH = 64
TAIL = re.compile(rb"%s, format (\d+), sha256 [0-9a-f]{%d}\Z" % (NAME.encode(), DIGEST_LENGTH))
STORABLE = "None, bool, int, float, str, list, tuple, dict, and numbers of numpy or torch"
# A dtype that numpy lacks, such as bfloat16, is stored as integers of the same bits.
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


class CheckpointError(ValueError):
    """A checkpoint that cannot be read; the message names the file and says why."""


def write(path: Path, state: State) -> None:
    """Put `state` into the file, whole or not at all; OSError where that fails, TypeError for what cannot be stored."""
    write_bytes(path, to_bytes(state))


def read(path: Path) -> dict[str, Any]:
    """The state in the file: mappings as dicts, tensors on the CPU, everything else as it was."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    check(path, data)
    return from_bytes(data)


def from_bytes(data: bytes) -> dict[str, Any]:
    """What `to_bytes` was given."""
    with ZipFile(BytesIO(data)) as archive:
        return dict(unpack(json.loads(archive.read(MANIFEST)), archive.read(ARRAYS)))


def check(path: Path, data: bytes) -> None:
    """The file is ours, undamaged, and of this version."""
    tail = TAIL.search(data[-2 * DIGEST_LENGTH :])
    if tail is None and data[: len(HEAD)] != HEAD[: len(data)]:
        raise CheckpointError(f"{path} is not a {NAME}")
    if tail is None or digest(memoryview(data)[:-DIGEST_LENGTH]) != data[-DIGEST_LENGTH:]:
        raise CheckpointError(f"{path} is truncated or damaged: its checksum does not fit")
    if int(tail[1]) != VERSION:
        raise CheckpointError(f"{path} was written by format version {int(tail[1])}, and this version reads {VERSION}")


def to_bytes(state: State) -> bytes:
    packer = Packer()
    if not isinstance(state, Mapping):
        raise unstorable("", state)
    return archived(json.dumps(packer.pack("", state), ensure_ascii=False, allow_nan=False), packer.arrays)


def archived(manifest: str, arrays: Iterable[Array]) -> bytes:
    """The zip file; equal states give equal bytes, because entries carry no time."""
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        archive.comment = f"{NAME}, format {VERSION}, sha256 {'0' * DIGEST_LENGTH}".encode()
        archive.writestr(ZipInfo(MARK), NAME)
        # A str may hold half of a surrogate pair, which strict UTF-8 refuses.
        archive.writestr(ZipInfo(MANIFEST), manifest.encode("utf-8", "surrogatepass"))
        with archive.open(ZipInfo(ARRAYS), "w", force_zip64=True) as entry:
            for array in arrays:
                entry.write(array.data)
    with buffer.getbuffer() as data:
        data[-DIGEST_LENGTH:] = digest(data[:-DIGEST_LENGTH])
    return buffer.getvalue()


def digest(data: bytes | memoryview) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


# Every checkpoint starts with these bytes, so that a truncated one can be told from a foreign file.
HEAD = archived("", [])[: 30 + len(MARK) + len(NAME)]


@dataclass
class Packer:
    """Turns a state into what JSON can say, and puts its arrays aside."""

    arrays: list[Array] = field(default_factory=list)
    size: int = 0

    def pack(self, path: str, value: Any) -> Any:
        """`value` for JSON; types must match exactly, because a subclass would come back as its base."""
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:  # beyond 2^53 other readers of JSON lose digits
            return value if abs(value) < 2**53 else {"$int": hex(value)}
        if kind is float:  # repr is exact, but JSON has no inf and nan, and nan has many bit patterns
            return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
        if kind is list:
            return self.pack_all(path, enumerate(value))
        if kind is tuple:
            return {"$tuple": self.pack_all(path, enumerate(value))}
        if isinstance(value, Mapping):
            return self.pack_mapping(path, value)
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return {"$scalar": [value.dtype.str, value.tobytes().hex()]}
        if kind is np.ndarray and value.dtype.kind in "biufc":
            return {"$array": self.put(value)}
        if isinstance(value, Tensor) and is_plain(value):
            return {"$tensor": [str(value.dtype), *self.put(as_array(value))]}
        raise unstorable(path, value)

    def pack_all(self, path: str, items: Iterable[tuple[Any, Any]]) -> list[Any]:
        return [self.pack(f"{path}.{key}" if path else str(key), value) for key, value in items]

    def pack_mapping(self, path: str, mapping: Mapping[Any, Any]) -> dict[str, Any]:
        for key in mapping:
            if type(key) not in (str, int):
                raise TypeError(f"a checkpoint cannot hold {path or 'a state'} with the key {key!r}: use str or int")
        values = self.pack_all(path, mapping.items())
        if all(type(key) is str and not key.startswith("$") for key in mapping):
            return dict(zip(mapping, values, strict=True))
        keys = [self.pack(path, key) for key in mapping]
        return {"$dict": list(zip(keys, values, strict=True))}

    def put(self, array: Array) -> list[Any]:
        """Where and how the array is stored.

        Its dimensions keep their order in memory, on which the last bit of a product may depend; gaps are not kept.
        """
        order = list(range(array.ndim))
        if not array.flags.c_contiguous:
            order.sort(key=lambda axis: -abs(array.strides[axis]))
        place = self.size
        self.arrays.append(np.ascontiguousarray(array.transpose(order)))
        self.size += array.nbytes
        return [array.dtype.str, array.shape, order, place]


def unpack(value: Any, store: bytes) -> Any:
    """What `Packer.pack` made `value` of; `store` holds the bytes of all arrays."""
    match value:
        case list():
            return [unpack(item, store) for item in value]
        case {"$int": digits}:
            return int(digits, 16)
        case {"$float": bits}:
            return struct.unpack(">d", bytes.fromhex(bits))[0]
        case {"$tuple": items}:
            return tuple(unpack(item, store) for item in items)
        case {"$dict": items}:
            return {unpack(key, store): unpack(item, store) for key, item in items}
        case {"$scalar": [dtype, bits]}:
            return np.frombuffer(bytes.fromhex(bits), dtype)[0]
        case {"$array": where}:
            return taken(store, *where)
        case {"$tensor": [dtype, *where]}:
            return torch.from_numpy(taken(store, *where)).view(DTYPES[dtype])
        case dict():
            return {key: unpack(item, store) for key, item in value.items()}
    return value


def taken(store: bytes, dtype: str, shape: list[int], order: list[int], place: int) -> Array:
    end = place + np.dtype(dtype).itemsize * math.prod(shape)
    numbers = np.frombuffer(bytearray(memoryview(store)[place:end]), dtype)  # a copy, which may be written to
    return numbers.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor is a block of numbers: not sparse, nested, quantised, or without data."""
    return tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized or tensor.is_meta)


def as_array(tensor: Tensor) -> Array:
    numbers = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return numbers.numpy()
    except TypeError:
        return numbers.view(BITS[numbers.itemsize]).numpy()


def unstorable(path: str, value: Any) -> TypeError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    dtype = f" of {value.dtype}" if isinstance(value, np.ndarray | Tensor) else ""
    return TypeError(f"a checkpoint cannot hold {path or 'a state'} of type {kind}{dtype}: use {STORABLE}")


def write_bytes(path: Path, data: bytes) -> None:
    """Replace the file by one with these bytes, on the disk when this returns; if it fails the old file stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):  # names the file that was meant
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A new name in a folder is on the disk only after the folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Checkpoints:
    """A folder of numbered checkpoints of one run, which has one writer; `keep` of them stay."""

    folder: Path
    keep: int = 2

    def __post_init__(self) -> None:
        require(self.keep >= 1, f"keep must be 1 or more checkpoints, not {self.keep}")

    def paths(self) -> list[Path]:
        """The checkpoints in the folder, readable or not, in the order of their steps."""
        return sorted((path for path in self.folder.glob("step_*.ckpt") if step_of(path) >= 0), key=step_of)

    def save(self, step: int, state: State) -> Path:
        """Write a checkpoint, then remove all but the newest `keep` up to this step.

        Later ones, which a run has after it went back to an earlier checkpoint, stay until it has passed them.
        """
        require(step >= 0, f"step must be 0 or more, not {step}")
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step_{step:012d}.ckpt"
        write(path, state)
        past = [other for other in self.paths() if step_of(other) <= step]
        leftover = self.folder.glob(".step_*.ckpt.*.tmp")  # of a process that was killed while it wrote
        for old in (*past[: -self.keep], *leftover):
            old.unlink(missing_ok=True)
        return path

    def latest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint that can be read, with a warning for each one that cannot; None in an empty folder."""
        reasons = []
        for path in reversed(self.paths()):
            try:
                return path, read(path)
            except CheckpointError as error:
                log.warning("%s; trying the checkpoint before it", error)
                reasons.append(str(error))
        if reasons:
            raise CheckpointError(f"{self.folder} holds no readable checkpoint: {'; '.join(reasons)}")
        return None


def step_of(path: Path) -> int:
    """The step in a checkpoint's name; -1 for any other name."""
    match = re.fullmatch(r"step_(\d{12,})\.ckpt", path.name)
    return int(match[1]) if match else -1

"""The whole state of a run, to one file and back, bit for bit; nothing in it is pickled.

A checkpoint is an uncompressed zip file, which `numpy.load` opens too:

    format         says "geonpg checkpoint"
    state.json     the state's structure and its plain values
    arrays.bin     the bytes of all arrays, end to end: a zip entry for each would take most of the time
    zip comment    the format's version, and the SHA-256 of every byte before it

In `state.json` an object whose one key starts with "$" stands for what JSON lacks (see packing.py), for example
`{"$array": [dtype, shape, order of the dimensions in memory, first byte in arrays.bin]}`.
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from geonpg.errors import Refused, require
from geonpg.files import write_bytes
from geonpg.finite import BrokenEnvironment

from .packing import Array, Packer, State, unpack, unstorable

log = logging.getLogger(__name__)

NAME, VERSION = "geonpg checkpoint", 1
MARK, MANIFEST, ARRAYS = "format", "state.json", "arrays.bin"
# The last bytes of a file of any version; only the digest itself is not under the checksum.
DIGEST_LENGTH = 64
TAIL = re.compile(rb"%s, format (\d+), sha256 [0-9a-f]{%d}\Z" % (NAME.encode(), DIGEST_LENGTH))


class CheckpointError(Refused):
    """A checkpoint that cannot be read; the message names the file and says why."""


class OtherRun(CheckpointError):
    """A checkpoint that is good, but not of this run: an older one beside it would be no better."""


def write(path: Path, state: Mapping[str, object]) -> None:
    """Write `state` into the file, whole or not at all; it is on the disk when this returns.

    Raises OSError where that fails, and TypeError for what cannot be stored.
    """
    write_bytes(path, to_bytes(state), durable=True)


def read(path: Path) -> State:
    """Read the state in the file: mappings as dicts, tensors on the CPU, everything else as it was."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    check(path, data)
    with expecting(path):
        return from_bytes(data)


@contextmanager
def expecting(path: Path) -> Iterator[None]:
    """Raise CheckpointError for whatever fails inside: the file is whole, but this version does not write such ones."""
    try:
        yield
    except (CheckpointError, BrokenEnvironment):  # an environment that cannot be restored begins anew, and may fail
        raise
    except Exception as error:  # unexpected content can fail in any way
        words = " ".join(str(error).split()) or "no reason given"
        raise CheckpointError(f"{path} is not of this version: {type(error).__name__}, {words}") from error


def from_bytes(data: bytes) -> State:
    """Turn what `to_bytes` returned back into the state that it was given."""
    with ZipFile(BytesIO(data)) as archive:
        return dict(unpack(json.loads(archive.read(MANIFEST)), archive.read(ARRAYS)))


def check(path: Path, data: bytes) -> None:
    """Raise CheckpointError unless the file is ours, undamaged, and of this version."""
    tail = TAIL.search(data[-2 * DIGEST_LENGTH :])
    if tail is None and data[: len(HEAD)] != HEAD[: len(data)]:
        raise CheckpointError(f"{path} is not a {NAME}")
    if tail is None or digest(memoryview(data)[:-DIGEST_LENGTH]) != data[-DIGEST_LENGTH:]:
        raise CheckpointError(f"{path} is truncated or damaged: its checksum does not fit")
    if int(tail[1]) != VERSION:
        raise CheckpointError(f"{path} was written by format version {int(tail[1])}, and this version reads {VERSION}")


def to_bytes(state: Mapping[str, object]) -> bytes:
    """Turn a state into the bytes of a checkpoint."""
    packer = Packer()
    if not isinstance(state, Mapping):
        raise unstorable("", state)
    return archived(json.dumps(packer.pack("", state), ensure_ascii=False, allow_nan=False), packer.arrays)


def archived(manifest: str, arrays: Iterable[Array]) -> bytes:
    """Make the zip file; equal states give equal bytes, because entries carry no time."""
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
    """The SHA-256 of some bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest().encode()


# Every checkpoint starts with these bytes, so that a truncated one can be told from a foreign file.
HEAD = archived("", [])[: 30 + len(MARK) + len(NAME)]


@dataclass(frozen=True)
class Checkpoints:
    """A folder of numbered checkpoints of one run, with one writer.

    folder: where they lie; it is made when the first one is saved.
    keep: how many of them stay, 1 to 5.
    """

    folder: Path
    keep: int = 2

    def __post_init__(self) -> None:
        require(self.keep >= 1, f"keep must be 1 or more checkpoints, not {self.keep}")

    def paths(self) -> list[Path]:
        """The checkpoints in the folder, readable or not, in the order of their steps."""
        return sorted((path for path in self.folder.glob("step_*.ckpt") if step_of(path) >= 0), key=step_of)

    def save(self, step: int, state: Mapping[str, object]) -> Path:
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

    def latest(self, take: Callable[[Path, State], None] | None = None) -> tuple[Path, State] | None:
        """Find the newest checkpoint that can be read, and that `take` takes; None in an empty folder.

        Warns of each one that is passed over, because of a CheckpointError other than OtherRun.
        """
        reasons = []
        for path in reversed(self.paths()):
            try:
                state = read(path)
                if take is not None:
                    take(path, state)
                return path, state
            except OtherRun:
                raise
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

"""Files that are written whole or not at all: the one atomic writer, for every folder of the project."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary name beside `path`; what is written there takes its place only if nothing fails.

    durable: it is on the disk when this returns, and survives a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if durable:
            sync(temporary)
        os.replace(temporary, path)
        if durable:
            sync(path.parent)  # a new name in a folder is on the disk only after the folder is
    except OSError as error:
        raise concerning(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def concerning(path: Path, error: OSError) -> OSError:
    """The same error, with the name of the file that was meant."""
    return error if error.errno is None else OSError(error.errno, error.strerror, str(path))


def named(folder: Path, error: OSError) -> OSError:
    """The same error, with its file's name as text; with the folder's, if it names no file."""
    return concerning(Path(os.fsdecode(error.filename)) if error.filename else folder, error)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes, durable: bool = False) -> None:
    """Replace the file by one with these bytes; if that fails the old file stays."""
    with replacing(path, durable) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Replace the file by one with this text; if that fails the old file stays."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")

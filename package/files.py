"""Files that are written whole or not at all: the one atomic writer, for every folder of the project."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`; what is written there takes its place only if nothing fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
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


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")

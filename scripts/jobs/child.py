"""A child process that runs one of our scripts, and ends when its parent does."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence


def worker_command(script: str, *arguments: str) -> list[str]:
    """Return the command that runs a script, by its name below scripts/, as a child (see worker.py)."""
    return [sys.executable, "-m", "geonpg.scripts.jobs.worker", script, *arguments]


class Child:
    """A child process whose standard input is a pipe from us, so that it notices when we end.

    inherited: file descriptors that the child keeps open, such as locks.
    """

    def __init__(self, command: Sequence[str], inherited: Sequence[int] = ()) -> None:
        self._began = time.monotonic()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=inherited,
            env={**os.environ, "TQDM_DISABLE": "1"},  # nobody looks at its progress bar
        )

    @property
    def seconds(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._began

    def last_words(self) -> str:
        """Return why the child failed: the signal that killed it, and the last line of its standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        spoken = [line.strip() for line in lines if line.strip()]
        code = self.process.returncode
        if code >= 0:
            return spoken[-1] if spoken else f"exit code {code}"
        killed = f"killed by signal {-code}"  # an abort says why; before others, the last line may be any warning
        return f"{killed}, after: {spoken[-1]}" if spoken else killed

    def close(self) -> None:
        """Release the files of a child that has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._errors.close()

"""RLtools' PPO as a contestant: processes that train when they are asked to, and what they answer."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from tempfile import TemporaryDirectory

from geonpg.scripts.benches.contest import Contestant

UPDATES = 2  # per segment, of 4096 steps each
WORKER = "geonpg.scripts.benches.rltools_worker"
PATIENCE = 10.0  # seconds in which a process may end by itself
INSTALL = 'pip install "rltools[mkl]>=2.2,<2.3", with a C++ compiler'


class NotStarted(Exception):
    """RLtools is not installed, or does not run here; the message says why."""


class RLtools:
    """A process that trains RLtools' PPO on one id, with its defaults.

    env_id: one of gymnasium's, with actions from -1 to 1.
    folder: where the loop is compiled; several ids of the same sizes share it.
    """

    def __init__(self, env_id: str, folder: str) -> None:
        command = [sys.executable, "-P", "-m", WORKER, env_id]
        variables = {**os.environ, "TMPDIR": folder}
        self.process = Popen(
            command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True, bufsize=1, cwd=folder, env=variables
        )
        self.cpu = 0.0  # seconds of CPU time until its last answer; between two it waits
        try:
            self._answer()
        except NotStarted:
            self.close()
            raise

    def _answer(self) -> int:
        """Read an answer; return the steps that were taken."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = json.loads(line) if line else {"error": "its process ended without an answer"}
        if "error" in found:
            raise NotStarted(found["error"])
        self.cpu = float(found["cpu"])
        return int(found["steps"])

    def train(self) -> int:
        """Train for a segment; return how many steps of single environments that took."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{UPDATES}\n")
        return self._answer()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    @property
    def contestant(self) -> Contestant:
        """What the contest asks of it."""
        return Contestant(lambda: None, self.train, lambda: self.cpu)


def start_all(env_ids: Sequence[str], stack: ExitStack) -> dict[str, Contestant]:
    """Start RLtools for every id; where it does not start, say why in a line and return nobody."""
    folder = stack.enter_context(TemporaryDirectory())
    found: dict[str, Contestant] = {}
    for env_id in env_ids:
        try:
            rltools = RLtools(env_id, folder)
        except (NotStarted, OSError) as error:
            print(f"RLtools is left out: {error} ({INSTALL})", file=sys.stderr)
            return {}
        stack.callback(rltools.close)
        found[env_id] = rltools.contestant
    return found

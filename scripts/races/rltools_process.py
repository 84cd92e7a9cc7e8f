"""RLtools' PPO seen from here: a process that trains and acts when it is asked to, and what it answers."""

import json
import os
import sys
from collections.abc import Sequence
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from typing import Any

WORKER = "geonpg.scripts.races.rltools_worker"
PATIENCE = 10.0  # seconds in which a process may end by itself
INSTALL = 'pip install "rltools[mkl]>=2.2,<2.3", with a C++ compiler'


class NotStarted(Exception):
    """RLtools is not installed, or does not run here; the message says why."""


class RLtools:
    """A process with RLtools' PPO on one id, with its defaults; when it is made, the loop is compiled.

    env_id: one of gymnasium's, with continuous actions.
    folder: where the loop is compiled; several ids of the same sizes share it.
    seed: of its environments and its agent.
    """

    def __init__(self, env_id: str, folder: str, seed: int = 0) -> None:
        command = [sys.executable, "-P", "-m", WORKER, env_id, str(seed)]
        here = os.pathsep.join(path or os.getcwd() for path in sys.path)  # or it would not find a user's own module
        variables = {**os.environ, "TMPDIR": folder, "PYTHONPATH": here}
        self.process = Popen(
            command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True, bufsize=1, cwd=folder, env=variables
        )
        self.cpu = 0.0  # seconds of CPU time until its last answer; between two it waits
        try:
            self._answer()
        except NotStarted:
            self.close()
            raise

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {"error": "its process ended without an answer"}
        if "error" in found:
            raise NotStarted(found["error"])
        self.cpu = float(found["cpu"])
        return found

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(request)}\n")
        return self._answer()

    def begin(self) -> None:
        """Make the environments and the agent."""
        self._ask(begin=True)

    def train(self, updates: int) -> int:
        """Make so many updates; return how many steps of single environments that took."""
        return int(self._ask(train=updates)["steps"])

    def act(self, observations: Sequence[Sequence[float]]) -> list[list[float]]:
        """Return the deterministic action after each observation, in units of -1 to 1."""
        return list(self._ask(act=observations)["actions"])

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

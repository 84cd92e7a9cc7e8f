"""Lives of `geonpg train`: real processes that tests may kill, starve and wait for.

Importing torch takes seconds, and loading compiled code a while, so a nursery process does that once and forks every
life from there.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NURSERY = """
import json, os, resource, sys
import torch._dynamo  # which torch would import in every life
from geonpg.envs import make_vec
from geonpg.scripts.runs import keeper
from geonpg.scripts.runs import training
from geonpg.scripts import train

def live(order, ends):
    os.dup2(ends[0][1], 1)
    os.dup2(ends[1][1], 2)
    if order["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"],) * 2)
        sys.exit(train.main(order["arguments"]))  # what Python says when it leaves counts here
    code = train.main(order["arguments"])
    sys.stdout.flush()
    os._exit(code)  # to leave would take longer than a short run

def wait(child):
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = []
    for reader, writer in pipes.pop(child):
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as file:
            texts.append(file.read())
    return [code, *texts]

make_vec("InvertedPendulum-v4", threads=1)  # loads compiled code, as every life would
keeper.CHECKPOINT_SECONDS = float(sys.argv[1])
pipes = {}
for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        answer = wait(order["wait"])
    else:
        ends = os.pipe(), os.pipe()
        answer = os.fork()
        if answer == 0:
            live(order, ends)
        pipes[answer] = ends
    print(json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Death:
    """How a process ended: its exit code, or minus the signal's number, and what it had printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Life:
    """One process of `geonpg train`. What it prints must fit into a pipe."""

    nursery: "Nursery"
    pid: int

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def wait(self) -> Death:
        return Death(*self.nursery.order({"wait": self.pid}))


@dataclass(frozen=True)
class Nursery:
    process: "subprocess.Popen[str]"

    def order(self, order: dict[str, Any]) -> Any:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps(order), file=stdin, flush=True)
        return json.loads(stdout.readline())

    def live(self, *arguments: str | Path, largest_file: int = 0) -> Life:
        """A process with these arguments, on a disk that takes no larger file (0: any)."""
        return Life(self, self.order({"arguments": [*map(str, arguments)], "largest_file": largest_file}))


@contextmanager
def nursery(checkpoint_seconds: float) -> Iterator[Nursery]:
    """A place to begin lives that save a checkpoint this often."""
    command = [sys.executable, "-c", NURSERY, str(checkpoint_seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)

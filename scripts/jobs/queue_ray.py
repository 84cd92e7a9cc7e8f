"""Runs the jobs of a comparison on a Ray cluster: the counterpart of runner.py, with the same few words.

A job trains on whichever machine has room, in a folder of its own there, and hands its files over as they change. They
go into the same folders here as those of a local run. A lost worker costs what it did since its last checkpoint: the
next one begins with the files that are here. No shared disk is needed.
"""

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from geonpg.errors import Refused
from geonpg.files import replacing
from geonpg.scripts.common.locks import AtWork, locked
from geonpg.scripts.jobs.job import Job
from geonpg.scripts.jobs.queue_local import ATTEMPTS

INSTALL = 'pip install "geonpg[cluster]"'
SHIP_SECONDS = 1.0  # between two looks at a job's files
LOST_ATTEMPTS = 20  # a job whose worker is lost has done no wrong, but a cluster that loses all of them must end

Files = dict[str, bytes | None]  # by path inside the run's folder; None for one that is gone


@dataclass(frozen=True)
class Stamp:
    """What tells that a file has changed."""

    time: int
    size: int


def changed(folder: Path, known: dict[str, Stamp]) -> Files:
    """The folder's files that are new, other or gone since the last look, which `known` remembers."""
    now: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            now[path.relative_to(folder).as_posix()] = path
    found: Files = {}
    for name, path in now.items():
        try:
            stat = path.stat()
            stamp = Stamp(stat.st_mtime_ns, stat.st_size)
            if known.get(name) != stamp:
                found[name], known[name] = path.read_bytes(), stamp
        except FileNotFoundError:  # an old checkpoint that has just been removed
            continue
    for name in [name for name in known if name not in now]:
        found[name] = None
        del known[name]
    return found


def take_in(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """Bring a folder up to date; checkpoints come before those they replace go."""
    for name, data in files.items():
        path = folder / name
        if data is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(data)


def work(order: list[str], files: Files, presets: Mapping[str, bytes]) -> Iterator[Files]:
    """On a worker: train in a folder of its own, from these files on, and yield what changes there.

    `order` is a script and its arguments, up to the folder, which is the last of them. `presets` are files that are
    named in it, and may be on another machine.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder, known = Path(temporary) / "run", dict[str, Stamp]()
        for path, data in presets.items():
            here = Path(temporary) / Path(path).name
            here.write_bytes(data)
            order = [str(here) if argument == path else argument for argument in order]
        if files:
            take_in(folder, files)
            changed(folder, known)
        command = [sys.executable, "-m", "geonpg.scripts.jobs.worker", *order, str(folder)]
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "TQDM_DISABLE": "1"},
            )
            try:
                while process.poll() is None:
                    time.sleep(SHIP_SECONDS)
                    if new := changed(folder, known):
                        yield new
            finally:
                process.kill()  # where the work was called off
            yield changed(folder, known)
            if process.returncode:
                errors.seek(0)
                said = errors.read().decode(errors="replace").strip().split("\n")[-1]
                raise RuntimeError(said or f"exit code {process.returncode}")


@dataclass(frozen=True)
class ClusterTask:
    """A job and its folder here; `done` follows its success."""

    job: Job
    folder: Path
    done: Callable[[], None]

    @property
    def name(self) -> str:
        return self.job.name

    def order(self) -> list[str]:
        """What begins the run, or goes on with it, in a folder that is still to be named."""
        *order, _ = self.job.order(self.folder)
        return order

    def presets(self) -> dict[str, bytes]:
        preset = self.job.preset
        return {preset: Path(preset).read_bytes()} if preset.endswith(".toml") else {}

    def files(self) -> Files:
        return changed(self.folder, {}) if self.folder.exists() else {}


class RayRunner:
    """Jobs that wait, run, and have failed, as in runner.Runner, but on a Ray cluster.

    A failed one is tried again once. One whose worker was lost has done no wrong, and is tried more often.
    """

    def __init__(self, tasks: Iterable[ClusterTask], address: str, cpus: float) -> None:
        self.ray, self.cpus = connected(address), cpus
        self.remote = self.ray.remote(num_cpus=cpus, max_retries=0)(work).options(num_returns="streaming").remote
        self.waiting = deque(tasks)
        self.running: dict[str, tuple[ClusterTask, Any]] = {}
        self.holds: dict[str, ExitStack] = {}  # the lock of each running job's folder here
        self.failures: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.failed: dict[str, str] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting or self.running)

    @property
    def slots(self) -> int:
        """How many jobs the cluster takes at a time; it may grow."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 0) / self.cpus))

    def advance(self) -> None:
        """Take in what running jobs have handed over, and start as many as there is room for."""
        for task, stream in list(self.running.values()):
            ready, _ = self.ray.wait([stream], timeout=0)
            if ready:
                self._take(task, stream)
        while self.waiting and len(self.running) < self.slots:
            task = self.waiting.popleft()
            try:
                self._hold(task)
            except AtWork as error:
                self.failed[task.name] = str(error)
                continue
            self.running[task.name] = (task, self.remote(task.order(), task.files(), task.presets()))

    def _hold(self, task: ClusterTask) -> None:
        """Take the lock of the job's folder, as soon as it is there."""
        if task.name not in self.holds and task.folder.exists():
            with ExitStack() as hold:
                hold.enter_context(locked(task.folder))
                self.holds[task.name] = hold.pop_all()

    def _leave(self, task: ClusterTask) -> None:
        del self.running[task.name]
        self.holds.pop(task.name, ExitStack()).close()

    def _take(self, task: ClusterTask, stream: Any) -> None:
        try:
            take_in(task.folder, self.ray.get(next(stream)))
            self._hold(task)
        except StopIteration:
            self._leave(task)
            task.done()
        except AtWork as error:
            self.ray.cancel(stream)
            self._leave(task)
            self.failed[task.name] = str(error)
        except self.ray.exceptions.RayTaskError as error:
            self._end(task, str(error.cause), self.failures, ATTEMPTS)
        except self.ray.exceptions.RayError as error:
            self._end(task, f"its worker was lost: {error}".split("\n")[0], self.losses, LOST_ATTEMPTS)

    def _end(self, task: ClusterTask, reason: str, counter: Counter[str], most: int) -> None:
        self._leave(task)
        counter[task.name] += 1
        if counter[task.name] < most:
            self.waiting.appendleft(task)
        else:
            self.failed[task.name] = reason

    def stop(self) -> None:
        """Call off what runs; its last checkpoint, a few seconds old, is here."""
        for _, stream in self.running.values():
            self.ray.cancel(stream)
        for hold in self.holds.values():
            hold.close()
        self.running.clear()
        self.ray.shutdown()


def connected(address: str) -> Any:
    """Ray, connected to the cluster at this address; without one, started here."""
    try:
        ray = import_module("ray")
    except ImportError:
        raise Refused(f"--cluster needs Ray: {INSTALL}") from None
    os.environ.setdefault("RAY_worker_niceness", "0")  # of workers that are started here; Ray's own is 15
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise Refused(f"no Ray cluster at {address!r}: {str(error).splitlines()[0]}") from None
    return ray

"""The engine of a queue on a Ray cluster: every item is a job of a comparison.

A job trains on whichever machine has room, in a temporary folder there, and sends its files as they change; here they
go into the same folders as those of a local run. If a worker is lost, the next one starts from the files that are here,
so only the work since the last checkpoint is lost. No shared disk is needed.
"""

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from geonpg.errors import Refused
from geonpg.files import replacing
from geonpg.scripts.common.locks import AtWork, locked
from geonpg.scripts.jobs.child import Child, worker_command
from geonpg.scripts.jobs.job import Job
from geonpg.scripts.jobs.queue import Ended, Outcome, Queue

INSTALL = 'pip install "geonpg[cluster]"'
SHIP_SECONDS = 1.0  # between two looks at a job's files

Files = dict[str, bytes | None]  # by path inside the run's folder; None for one that is gone


@dataclass(frozen=True)
class Stamp:
    """Time and size of a file, which tell whether it has changed."""

    time: int
    size: int


def changed(folder: Path, known: dict[str, Stamp]) -> Files:
    """Return the files that are new, changed or gone since the last call, which `known` remembers."""
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
    """Apply changed files to a folder; new checkpoints are written before old ones are removed."""
    for name, data in files.items():
        path = folder / name
        if data is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(data)


def work(order: list[str], files: Files, presets: Mapping[str, bytes]) -> Iterator[Files]:
    """Train in a temporary folder on a worker, starting from these files, and yield the files that change.

    order: a script and its arguments without the last one, the folder.
    presets: contents of files named in the order, which may be on another machine.
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
        with closing(Child(worker_command(*order, str(folder)))) as child:
            try:
                while child.process.poll() is None:
                    time.sleep(SHIP_SECONDS)
                    if new := changed(folder, known):
                        yield new
            finally:
                child.process.kill()  # where the work was called off
            yield changed(folder, known)
            if child.process.returncode:
                raise RuntimeError(child.last_words())


@dataclass(frozen=True)
class ClusterItem:
    """A job and its folder on this machine.

    done: called after success.
    """

    job: Job
    folder: Path
    done: Callable[[], None]

    @property
    def name(self) -> str:
        return self.job.name

    def order(self) -> list[str]:
        """Return the script and the arguments that begin or resume the run, without the folder."""
        *order, _ = self.job.order(self.folder)
        return order

    def presets(self) -> dict[str, bytes]:
        """Return the content of the preset's file, by its path in the order."""
        preset = self.job.preset
        return {preset: Path(preset).read_bytes()} if preset.endswith(".toml") else {}

    def files(self) -> Files:
        """Return the files that the run already has."""
        return changed(self.folder, {}) if self.folder.exists() else {}


class RayQueue(Queue[ClusterItem, Any]):
    """A queue on a Ray cluster, as many jobs at a time as it has processors for.

    address: of the cluster; empty to start Ray on this machine.
    cpus: processors of one job.
    """

    def __init__(self, items: Iterable[ClusterItem], address: str, cpus: float) -> None:
        super().__init__(items)
        self.ray, self.cpus = connected(address), cpus
        self.remote = self.ray.remote(num_cpus=cpus, max_retries=0)(work).options(num_returns="streaming").remote
        self.holds: dict[str, ExitStack] = {}  # the lock of each running job's folder here

    @property
    def slots(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 0) / self.cpus))

    def start(self, item: ClusterItem) -> Any:
        """Submit a job; return the stream of its files."""
        self._hold(item)
        return self.remote(item.order(), item.files(), item.presets())

    def poll(self, item: ClusterItem, started: Any) -> Ended | None:
        """Take in the files that the job has sent; return how it ended, or None if it has not."""
        ready, _ = self.ray.wait([started], timeout=0)
        if not ready:
            return None
        try:
            take_in(item.folder, self.ray.get(next(started)))
            self._hold(item)
            return None
        except StopIteration:
            ended = Ended(Outcome.DONE)
        except AtWork as error:
            self.ray.cancel(started)
            ended = Ended(Outcome.TAKEN, str(error))
        except self.ray.exceptions.RayTaskError as error:
            ended = Ended(Outcome.FAILED, str(error.cause))
        except self.ray.exceptions.RayError as error:
            ended = Ended(Outcome.LOST, f"its worker was lost: {error}".split("\n")[0])
        self.holds.pop(item.name, ExitStack()).close()
        return ended

    def _hold(self, item: ClusterItem) -> None:
        """Lock the job's folder as soon as it exists."""
        if item.name not in self.holds and item.folder.exists():
            with ExitStack() as hold:
                hold.enter_context(locked(item.folder))
                self.holds[item.name] = hold.pop_all()

    def halt(self) -> None:
        """Cancel running jobs; their latest checkpoints, a few seconds old, are here."""
        for _, stream in self.running.values():
            self.ray.cancel(stream)
        for hold in self.holds.values():
            hold.close()
        self.ray.shutdown()


def connected(address: str) -> Any:
    """Return Ray, connected to the cluster at this address or started here; raise Refused if that fails."""
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

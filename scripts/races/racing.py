"""`geonpg race` after its arguments are parsed: the queue of entries, one at a time, and what came of them."""

import logging
import os
import shlex
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from geonpg.errors import Refused
from geonpg.scripts.common.artifacts import Table, markdown, write_tables
from geonpg.scripts.common.locks import AtWork, locked
from geonpg.scripts.common.parser import refuse
from geonpg.scripts.common.stopping import Signals, listening
from geonpg.scripts.common.style import FORMATS, write_figure
from geonpg.scripts.jobs.child import worker_command
from geonpg.scripts.jobs.queue_local import LocalItem, LocalQueue
from geonpg.scripts.races.analysis import race_tables, read_races
from geonpg.scripts.races.course import Entry, check_recorded, entries_of, groups_of, on_this_machine
from geonpg.scripts.races.figures import race_figure
from geonpg.scripts.races.rows import ROWS, is_done

LOCK_SECONDS = 10.0  # to wait for the last entry of a race that was killed
POLL_SECONDS = 0.5
# An entry hangs if nothing is heard of it for so many times its minutes and so many more; each evaluation is heard of.
PATIENCE, WARM_UP = 3.0, 20.0
BUSY = 0.7  # programs that want a core, on average over a minute
BAR = "{percentage:3.0f}%|{bar}| {desc}, {remaining} left"
ANEW = "the entry that was interrupted begins anew, because a race against the clock cannot be resumed fairly"


@contextmanager
def this_machine() -> Iterator[int | None]:
    """Hold the lock of this machine, on which nobody may race at the same time; raise Refused if somebody does."""
    folder = Path(tempfile.gettempdir()) / f"geonpg-race-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    try:
        with locked(folder, LOCK_SECONDS) as lock:
            yield lock
    except AtWork:
        raise Refused("another race is running on this machine: wait until it has ended") from None


@dataclass
class Board:
    """How far a race is, in minutes of its clock.

    asked: how many entries there should be; those that were left out are not among `entries`.
    started: when entries began, in seconds.
    """

    entries: Sequence[Entry]
    root: Path
    asked: int
    started: dict[str, float] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.done |= {entry.name for entry in self.entries if is_done(self.root / entry.name)}

    @property
    def todo(self) -> list[Entry]:
        """The entries that have not ended."""
        return [entry for entry in self.entries if entry.name not in self.done]

    def minutes(self) -> float:
        """Minutes raced so far, those of the entry at work by the wall clock."""
        return sum(entry.minutes if entry.name in self.done else self.elapsed(entry) for entry in self.entries)

    def elapsed(self, entry: Entry) -> float:
        """Minutes since an entry began, no more than it has to race."""
        began = self.started.get(entry.name)
        return 0.0 if began is None else min(entry.minutes, (time.monotonic() - began) / 60)

    def item(self, entry: Entry) -> LocalItem:
        """Make the item of an entry for the queue."""

        def command() -> list[str]:
            self.started[entry.name] = time.monotonic()
            return worker_command("races.entry", *entry.arguments, f"--folder={self.root / entry.name}")

        limit = 60 * (PATIENCE * entry.minutes + WARM_UP)
        return LocalItem(entry.name, command, lambda: self.done.add(entry.name), limit, self.root / entry.name / ROWS)


def run(board: Board, lock: int | None, signals: Signals) -> Mapping[str, str]:
    """Run all entries that have not ended, one at a time; return why some failed, by their names."""
    queue = LocalQueue([board.item(entry) for entry in board.todo], 1, lock)
    total = sum(entry.minutes for entry in board.entries)
    with tqdm(total=total, initial=board.minutes(), bar_format=BAR, dynamic_ncols=True, smoothing=0) as bar:

        def look() -> None:
            counted = f"{len(board.done)} of {len(board.entries)} done"
            bar.set_description_str(", ".join([counted, *queue.running]), refresh=False)
            bar.update(board.minutes() - bar.n)

        queue.work(signals, look, POLL_SECONDS)
    return queue.failed


def warn_of_load(board: Board) -> None:
    """Warn if other programs are at work on this machine while someone is still to race."""
    load = os.getloadavg()[0]
    if board.todo and load > BUSY:
        print(f"the load of this machine is {load:.1f}: a race wants it to itself", file=sys.stderr)


def report(results: Path) -> list[Table]:
    """Write the tables and the figure of all entries that have ended; return the tables."""
    study = read_races(results)
    if not study:
        return []
    tables = race_tables(study)
    write_tables(tables, results / "tables.md", "Races against the clock")
    for kind in FORMATS:
        write_figure(race_figure(study), results / f"race.{kind}")
    return tables


def race(arguments: Namespace, given: Sequence[str]) -> int:
    """Run the race that the arguments name; return the exit code. `given` is the command line, to be repeated."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    root: Path = arguments.results
    try:
        with listening() as signals:
            entries = entries_of(groups_of(arguments), arguments.envs.split(","))
            for entry in entries:
                check_recorded(entry, root)
            read_races(root)  # what cannot be told of afterwards is refused now
            root.mkdir(parents=True, exist_ok=True)
            with this_machine() as lock:
                board = Board(on_this_machine(entries, root), root, len(entries))
                warn_of_load(board)
                failed = run(board, lock, signals)
    except (Refused, OSError) as error:
        return refuse("geonpg race", error)
    told = print_tables(root)
    return print_outcome(board, failed, signals, shlex.join(["geonpg", "race", *given])) or told


def print_tables(root: Path) -> int:
    """Report on all entries and print the tables; return the exit code. Whatever goes wrong here, the race was run."""
    try:
        if tables := report(root):
            print(markdown(tables))
    except (Refused, OSError) as error:
        return refuse("geonpg race", error)
    return 0


def print_outcome(board: Board, failed: Mapping[str, str], signals: Signals, command: str) -> int:
    """Print how far the race has come, and how to go on with it; return the exit code."""
    left_out = board.asked - len(board.entries)
    counted = f"{len(board.done)} of {board.asked} entries are done in {board.root}"
    counted += f", {left_out} left out" if left_out else ""
    if signals():
        print(f"stopped: {counted}; {ANEW}; go on with: {command}")
        return 128 + signals.received
    print(counted)
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    return 1 if failed or left_out else 0

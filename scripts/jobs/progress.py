"""The progress of a study, read from the files of its runs, and its display."""

import math
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from geonpg.scripts.common.timer import Timer
from geonpg.scripts.jobs.job import Job
from geonpg.scripts.runs.folder import CURVE, TIMES, is_done

REFRESH_SECONDS = 1.0  # on a terminal
LINE_SECONDS = 60.0  # between two lines elsewhere


@dataclass(frozen=True)
class Progress:
    """How far one run is, according to its files."""

    steps: int = 0
    seconds: float = 0.0
    latest_return: float = math.nan

    def since(self, before: "Progress") -> "Progress":
        """Return what was made of it after an earlier moment."""
        return Progress(self.steps - before.steps, self.seconds - before.seconds, self.latest_return)


def progress_of(folder: Path) -> Progress:
    """Read how far the run in a folder is; zero before its first rows."""
    curve, times = CURVE.last(folder), TIMES.last(folder)
    return Progress(times.steps, times.seconds, curve.return_) if curve and times else Progress()


# Which runs should be equally fast, the most alike first.
ALIKE: tuple[Callable[[Job], Any], ...] = (
    lambda job: (job.env_id, job.family, job.variant),
    lambda job: job.family,
    lambda job: None,
)


Measured = Sequence[tuple[Job, Progress]]


def speed_of(job: Job, lately: Measured, ever: Measured) -> float | None:
    """Return the steps per second of the runs most like this one, lately if there are any; None before all measures."""
    for kind in ALIKE:
        for measured in (lately, ever):
            alike = [progress for other, progress in measured if progress.seconds > 0 and kind(other) == kind(job)]
            if made := sum(progress.steps for progress in alike):
                return made / sum(progress.seconds for progress in alike)
    return None


def time_left(
    jobs: Sequence[Job],
    progress: Mapping[str, Progress],
    before: Mapping[str, Progress],
    done: Collection[str],
    slots: int,
) -> float | None:
    """Estimate the seconds until all jobs are done, `slots` at a time; None before any speed is known.

    What was made after `before` counts first: a machine may have been busier when the rest was, or another one.
    """
    ever, todo = [(job, progress[job.name]) for job in jobs], [job for job in jobs if job.name not in done]
    lately = [(job, now.since(before[job.name])) for job, now in ever]
    speeds = [speed_of(job, lately, ever) for job in todo]
    needs = [
        (job.steps - min(job.steps, progress[job.name].steps)) / speed
        for job, speed in zip(todo, speeds, strict=True)
        if speed
    ]
    if len(needs) < len(todo):
        return None
    return max(sum(needs) / slots, max(needs, default=0.0))


class Board:
    """The progress of all jobs of a study."""

    def __init__(self, jobs: Sequence[Job], root: Path) -> None:
        self.jobs, self.root = jobs, root
        self.progress = {job.name: progress_of(root / job.name) for job in jobs}
        self.done = {job.name for job in jobs if is_done(root / job.name)}
        self.began, self.steps_before, self.before = time.monotonic(), self.steps, dict(self.progress)

    @property
    def steps(self) -> int:
        """Steps made by all runs so far."""
        return sum(min(self.progress[job.name].steps, job.steps) for job in self.jobs)

    def look(self, names: Iterable[str]) -> None:
        """Read again how far these runs are."""
        for name in names:
            self.progress[name] = now = progress_of(self.root / name)
            if now.steps < self.before[name].steps:  # killed, it goes on from a checkpoint before its last rows
                self.before[name] = now
            if is_done(self.root / name):
                self.done.add(name)

    def lines(self, running: Iterable[str], failed: Collection[str], slots: int) -> list[str]:
        """Return one line about all runs, of which `slots` run at a time, and one about each that is running."""
        left = time_left(self.jobs, self.progress, self.before, {*self.done, *failed}, slots)
        speed = max(0, self.steps - self.steps_before) / max(time.monotonic() - self.began, 1e-9)
        parts = [
            f"{len(self.done)} of {len(self.jobs)} runs done" + (f", {len(failed)} failed" if failed else ""),
            f"{self.steps:,} of {sum(job.steps for job in self.jobs):,} steps",
            f"{speed:,.0f} steps/s",
            "time left not known yet" if left is None else f"{duration(left)} left",
        ]
        return [", ".join(parts), *(f"  {name}: {described(self.progress[name])}" for name in running)]


def described(progress: Progress) -> str:
    """Describe the progress of one run."""
    if not progress.steps:
        return "starting"
    return f"{progress.steps:,} steps, return {progress.latest_return:.1f}"


def duration(seconds: float) -> str:
    """Format seconds in the two units that matter."""
    minutes = math.ceil(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class Display:
    """Lines refreshed in place on a terminal; elsewhere, the first line now and then."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.live = stream, stream.isatty()
        self.height, self.timer = 0, Timer(due=True)

    @property
    def is_due(self) -> bool:
        """Whether the display should be refreshed."""
        return self.timer.is_due(REFRESH_SECONDS if self.live else LINE_SECONDS)

    def show(self, lines: Sequence[str]) -> None:
        """Replace the displayed lines."""
        self.timer.restart()
        if not self.live:
            print(lines[0], file=self.stream, flush=True)
            return
        width = shutil.get_terminal_size().columns - 1
        # up to the first line of the last time, then line by line, and clear what is below
        up = f"\x1b[{self.height}F" if self.height else ""
        text = "".join(f"{line[:width]}\x1b[K\n" for line in lines)
        print(f"{up}{text}\x1b[J", end="", file=self.stream, flush=True)
        self.height = len(lines)

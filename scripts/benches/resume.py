"""What `kill -9` costs: runs that are killed at random moments and resumed, against one that is left alone.

All train on Walker2d-v4 with the default preset, each life in a process of its own, as a user would start it.
"""

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from geonpg.agents.checkpoint import Checkpoints
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.benches.kills import measure_short_runs
from geonpg.scripts.runs.folder import CHECKPOINTS, CURVE, EVALUATIONS, FINAL

COMMAND = (sys.executable, "-m", "geonpg.scripts.train")
ARGUMENTS = ("--env", "Walker2d-v4", "--steps", "60000")
KILLS, SEED = 20, 0
LONGEST = 8.0  # seconds that a life may train before it is killed
EXACT = (FINAL, CURVE.file, EVALUATIONS.file)

Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class ResumeFindings(Findings):
    """What the kills cost."""

    runs: int
    lost_seconds: Sequence[float]  # of training, one per kill
    identical: bool  # whether every run ended byte for byte as the one left alone

    def numbers(self) -> Numbers:
        found = {
            "identical": self.identical,
            "kills": len(self.lost_seconds),
            "runs": self.runs,
            "worst_lost_seconds": max(self.lost_seconds),
            "median_lost_seconds": statistics.median(self.lost_seconds),
        }
        return {"resume": found}

    def table(self) -> str:
        same, seconds = "all" if self.identical else "NOT all", self.lost_seconds
        median, worst = statistics.median(seconds), max(seconds)
        return "\n".join(
            [
                f"{' '.join(ARGUMENTS)}: {len(seconds)} kills in {self.runs} runs",
                f"{same} of {', '.join(EXACT)} are byte for byte those of an uninterrupted run",
                f"seconds of training lost by a kill: median {median:.1f}, worst {worst:.1f}",
            ]
        )


def start(folder: Path) -> Process:
    """Start a process that begins the run in this folder, or resumes it."""
    what = ("--resume", folder) if folder.exists() else (*ARGUMENTS, "--folder", folder)
    with folder.with_suffix(".log").open("wb") as log:
        return subprocess.Popen([*COMMAND, *map(str, what)], stdout=log, stderr=log)


def wait_for_end(life: Process, folder: Path) -> None:
    """Wait for a process to end by itself; raise RuntimeError if it failed."""
    if life.wait():
        raise RuntimeError(f"the run in {folder} failed: {folder.with_suffix('.log').read_text()}")


def saved_at(folder: Path) -> float:
    """Return when the newest checkpoint was written; 0 if there is none."""
    return max((path.stat().st_mtime for path in Checkpoints(folder / CHECKPOINTS).paths()), default=0.0)


def boards(folder: Path) -> int:
    """Count TensorBoard's files in a run's folder: each process adds some when it begins to train."""
    return len(list(folder.glob("events.out.*")))


def wait_until(event: Callable[[], bool], life: Process) -> None:
    """Wait for an event, or for the process to end."""
    while not event() and life.poll() is None:
        time.sleep(0.02)


def kill_once(folder: Path, moment: float, spare: bool) -> float | None:
    """Kill one process this long after it began to train, or after it saved if it is to be spared until then.

    Returns the seconds of training that were lost, or None if the run came to its end before.
    """
    saved, seen = saved_at(folder), boards(folder)
    life = start(folder)
    wait_until(lambda: boards(folder) > seen, life)
    began = time.time()
    if spare:
        wait_until(lambda: saved_at(folder) > saved, life)
    try:
        life.wait(moment)
    except subprocess.TimeoutExpired:
        life.kill()
        killed = time.time()
        life.wait()
        return max(0.0, killed - max(began, saved_at(folder)))
    wait_for_end(life, folder)
    return None


def killed_run(folder: Path, moments: random.Random, kills: int, bar: "tqdm[None]") -> list[float]:
    """Train a run to its end, killed at most so often on its way; return the seconds that each kill lost."""
    lost: list[float] = []
    gained = True
    while len(lost) < kills:
        before = saved_at(folder)
        seconds = kill_once(folder, moments.uniform(0, LONGEST), spare=not gained)
        if seconds is None:
            return lost
        gained = saved_at(folder) > before
        lost.append(seconds)
        bar.update()
    wait_for_end(start(folder), folder)
    return lost


def measure(kills: int | None = None) -> Findings:
    """Kill runs of a user's length, or so many times short ones (kills.py)."""
    if kills is not None:
        return measure_short_runs(kills)
    lost: list[float] = []
    moments, identical, runs = random.Random(SEED), True, 0
    with TemporaryDirectory() as name, tqdm(total=KILLS, desc="kills", leave=False, disable=None) as bar:
        whole = Path(name) / "whole"
        wait_for_end(start(whole), whole)
        while len(lost) < KILLS:
            runs, folder = runs + 1, Path(name) / f"run{runs}"
            lost += killed_run(folder, moments, KILLS - len(lost), bar)
            identical &= all((folder / file).read_bytes() == (whole / file).read_bytes() for file in EXACT)
    return ResumeFindings(runs, lost, identical)

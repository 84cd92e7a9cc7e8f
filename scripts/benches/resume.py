"""What `kill -9` costs: runs that are killed at random moments and resumed, against one that is left alone.

All train on Walker2d-v4 by the default preset, each life in a process of its own, as a user would start it.
"""

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from geonpg.agents.checkpoint import Checkpoints

COMMAND = (sys.executable, "-m", "geonpg.scripts.train")
ARGUMENTS = ("--env", "Walker2d-v4", "--steps", "60000")
KILLS, SEED = 20, 0
LONGEST = 8.0  # seconds that a life may train before it is killed
EXACT = ("final.ckpt", "curve.csv", "evaluations.csv")

Process = subprocess.Popen[bytes]


def start(folder: Path) -> Process:
    """A new process that begins the run in this folder, or goes on with it."""
    what = ("--resume", folder) if folder.exists() else (*ARGUMENTS, "--folder", folder)
    with folder.with_suffix(".log").open("wb") as log:
        return subprocess.Popen([*COMMAND, *map(str, what)], stdout=log, stderr=log)


def finished(life: Process, folder: Path) -> None:
    """A process that ended by itself must have ended well."""
    if life.wait():
        raise RuntimeError(f"the run in {folder} failed: {folder.with_suffix('.log').read_text()}")


def saved_at(folder: Path) -> float:
    """When the newest checkpoint was written; 0 if there is none."""
    return max((path.stat().st_mtime for path in Checkpoints(folder / "checkpoints").paths()), default=0.0)


def boards(folder: Path) -> int:
    """TensorBoard's files in a run's folder: each process adds some when it begins to train."""
    return len(list(folder.glob("events.out.*")))


def wait_until(event: Callable[[], bool], life: Process) -> None:
    while not event() and life.poll() is None:
        time.sleep(0.02)


def live(folder: Path, moment: float, spare: bool) -> float | None:
    """One process, killed this long after it began to train, or after it saved if it is to be spared until then.

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
    finished(life, folder)
    return None


def killed_run(folder: Path, moments: random.Random, kills: int, bar: "tqdm[None]") -> list[float]:
    """A run to its end, killed on its way as often as there are kills left; the seconds that each of them lost."""
    lost: list[float] = []
    gained = True
    while len(lost) < kills:
        before = saved_at(folder)
        seconds = live(folder, moments.uniform(0, LONGEST), spare=not gained)
        if seconds is None:
            return lost
        gained = saved_at(folder) > before
        lost.append(seconds)
        bar.update()
    finished(start(folder), folder)
    return lost


def measure() -> dict[str, float]:
    lost: list[float] = []
    moments, identical, runs = random.Random(SEED), True, 0
    with TemporaryDirectory() as name, tqdm(total=KILLS, desc="kills", leave=False, disable=None) as bar:
        whole = Path(name) / "whole"
        finished(start(whole), whole)
        while len(lost) < KILLS:
            runs, folder = runs + 1, Path(name) / f"run{runs}"
            lost += killed_run(folder, moments, KILLS - len(lost), bar)
            identical &= all((folder / file).read_bytes() == (whole / file).read_bytes() for file in EXACT)
    return {
        "resume/identical": float(identical),
        "resume/kills": float(len(lost)),
        "resume/runs": float(runs),
        "resume/worst_lost_seconds": max(lost),
        "resume/median_lost_seconds": statistics.median(lost),
    }


def table(results: dict[str, float]) -> str:
    same = "all" if results["resume/identical"] else "NOT all"
    return "\n".join(
        [
            f"{' '.join(ARGUMENTS)}: {results['resume/kills']:.0f} kills in {results['resume/runs']:.0f} runs",
            f"{same} of {', '.join(EXACT)} are byte for byte those of an uninterrupted run",
            f"seconds of training lost by a kill: median {results['resume/median_lost_seconds']:.1f}, "
            f"worst {results['resume/worst_lost_seconds']:.1f}",
        ]
    )

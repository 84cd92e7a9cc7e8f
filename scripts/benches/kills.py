"""Short runs that are killed by `kill -9` again and again, and resumed, against one that is left alone.

Checkpoints are written after every update, and half of the kills wait until a file is being written. Every life is a
process of its own, forked from this one, which has imported everything once.
"""

import gc
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tqdm import tqdm

from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.runs import keeper
from geonpg.scripts.runs.arguments import parse
from geonpg.scripts.runs.folder import BEST, CHECKPOINTS, CURVE, EVALUATIONS, FINAL
from geonpg.scripts.runs.training import train

SETTINGS = ("n_steps=32", "hidden=8", "critic_hidden=8", "eval_every=500", "eval_episodes=2", "env_threads=1")
ARGUMENTS = ("--env", "InvertedPendulum-v4", "--n-envs", "4", "--steps", "1536", *(f"--set={key}" for key in SETTINGS))
EXACT = (FINAL, BEST, CURVE.file, EVALUATIONS.file)
KILLS_PER_RUN, SEED = 3, 0
PATIENCE = 5.0  # seconds that a kill waits for a file that is being written


class KilledRun(NamedTuple):
    """One run that was killed some times, and resumed to its end."""

    kills: int
    amid: int  # those of the kills that left a half-written file
    problem: str  # what is wrong with its end; nothing if it is that of a run left alone


@dataclass(frozen=True)
class KillFindings(Findings):
    """What became of runs that were killed."""

    runs: Sequence[KilledRun]

    @property
    def lost(self) -> int:
        """How many runs did not end as one left alone."""
        return sum(bool(run.problem) for run in self.runs)

    @property
    def failed(self) -> bool:
        return self.lost > 0

    def totals(self) -> tuple[int, int]:
        """Count the kills, and those of them amid the writing of a file."""
        return sum(run.kills for run in self.runs), sum(run.amid for run in self.runs)

    def numbers(self) -> Numbers:
        kills, amid = self.totals()
        return {"resume": {"kills": kills, "amid_writing": amid, "runs": len(self.runs), "lost": self.lost}}

    def table(self) -> str:
        kills, amid = self.totals()
        counts = f"{kills} kills in {len(self.runs)} runs, {amid} of them amid the writing of a file"
        lost = f"{self.lost} runs were LOST or ended otherwise"
        fate = lost if self.lost else "every run ended byte for byte as one left alone"
        return f"{counts}: {fate} ({', '.join(EXACT)})"


@dataclass(frozen=True)
class Life:
    """One process of `geonpg train`, and the file that it prints to."""

    pid: int
    log: Path

    def is_over(self) -> bool:
        """Whether it has ended; it stays a zombie until `wait`, so that its number is not given to another."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> int:
        """Return its exit code, or minus the number of the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        """End it at once."""
        os.kill(self.pid, signal.SIGKILL)


def fork_life(folder: Path) -> Life:
    """Fork a process that begins the run in this folder, or resumes it."""
    what = ("--resume", str(folder)) if folder.exists() else (*ARGUMENTS, "--folder", str(folder))
    log = folder.with_suffix(".log")
    pid = os.fork()
    if pid:
        return Life(pid, log)
    code = 1
    gc.freeze()  # what was garbage in the parent may own threads that are not here
    try:
        sys.stdout = sys.stderr = log.open("w", encoding="utf-8")
        for descriptor in (1, 2):
            os.dup2(sys.stdout.fileno(), descriptor)
        keeper.CHECKPOINT_SECONDS = 0.0
        code = train(parse(what))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def half_written(folder: Path) -> list[Path]:
    """Find the files that a process is writing, or was writing when it was killed."""
    found: list[Path] = []
    for place in (folder, folder / CHECKPOINTS):
        try:
            found += [place / name for name in os.listdir(place) if name.endswith(".tmp")]
        except OSError:  # not there yet
            continue
    return found


def kill_at(life: Life, folder: Path, moment: float, amid: bool) -> int:
    """Kill a life at this moment, or as soon after it as a file is being written; return its exit code."""
    end = time.monotonic() + moment
    while time.monotonic() < end and not life.is_over():
        time.sleep(0.001)
    while amid and not half_written(folder) and not life.is_over() and time.monotonic() < end + PATIENCE:
        pass
    life.kill()
    return life.wait()


def problem_of(life: Life, code: int, folder: Path, whole: Path) -> str:
    """Say what is wrong with a run that has come to its end; nothing if it ended as the one left alone."""
    text = life.log.read_text(errors="replace")
    if code or "Traceback" in text:
        return f"it ended with code {code}: {text.strip().splitlines()[-1:]}"
    differ = [name for name in EXACT if (folder / name).read_bytes() != (whole / name).read_bytes()]
    left = [path.name for path in half_written(folder)]
    return f"{', '.join(differ)} differ" if differ else f"{', '.join(left)} is left" if left else ""


def killed_run(folder: Path, whole: Path, moments: random.Random, longest: float, kills: int) -> KilledRun:
    """Train a run to its end, killed at most so often on its way, each time within so many seconds."""
    killed = amid = 0
    for _ in range(kills):
        life = fork_life(folder)
        code = kill_at(life, folder, moments.uniform(0, longest), amid=moments.random() < 0.5)
        if code != -signal.SIGKILL:
            break
        killed, amid = killed + 1, amid + bool(half_written(folder))
    else:
        life = fork_life(folder)
        code = life.wait()
    return KilledRun(killed, amid, problem_of(life, code, folder, whole))


def measure_short_runs(kills: int) -> KillFindings:
    """Kill short runs so many times in all, and resume each of them to its end."""
    for late in ("geonpg.scripts.runs.training", "torch._dynamo"):  # here once, and not by every life
        import_module(late)
    tqdm.monitor_interval = 0  # a thread would not survive a fork
    moments, runs = random.Random(SEED), list[KilledRun]()
    with TemporaryDirectory() as name, tqdm(total=kills, desc="kills", leave=False, disable=None) as bar:
        whole, began = Path(name) / "whole", time.monotonic()
        first = fork_life(whole)
        if problem := problem_of(first, first.wait(), whole, whole):
            raise RuntimeError(f"the run that is left alone failed: {problem}")
        longest = (time.monotonic() - began) * 2 / 3  # most lives shall not come to their end
        while (left := kills - sum(run.kills for run in runs)) > 0:
            folder = Path(name) / f"run{len(runs)}"
            run = killed_run(folder, whole, moments, longest, min(KILLS_PER_RUN, left))
            runs.append(run)
            bar.update(run.kills)
            if run.problem:
                tqdm.write(f"run {len(runs)}: {run.problem}", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)
    return KillFindings(runs)

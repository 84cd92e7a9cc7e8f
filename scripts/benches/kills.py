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
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from geonpg.scripts.runs import keeper
from geonpg.scripts.runs.arguments import parse
from geonpg.scripts.runs.training import train

SETTINGS = ("n_steps=32", "hidden=8", "critic_hidden=8", "eval_every=500", "eval_episodes=2", "env_threads=1")
ARGUMENTS = ("--env", "InvertedPendulum-v4", "--n-envs", "4", "--steps", "1536", *(f"--set={key}" for key in SETTINGS))
EXACT = ("final.ckpt", "best.ckpt", "curve.csv", "evaluations.csv")
KILLS_PER_RUN, SEED = 3, 0
PATIENCE = 5.0  # seconds that a kill waits for a file that is being written


@dataclass(frozen=True)
class Life:
    """One process of `geonpg train`, and the file that it prints to."""

    pid: int
    log: Path

    def is_over(self) -> bool:
        """Whether it has ended; it stays a zombie until it is waited for, so that its number is not given again."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> int:
        """Its exit code, or minus the number of the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def live(folder: Path) -> Life:
    """Begin the run in this folder, or go on with it."""
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
    """Files that a process is writing, or was killed over."""
    found: list[Path] = []
    for place in (folder, folder / "checkpoints"):
        try:
            found += [place / name for name in os.listdir(place) if name.endswith(".tmp")]
        except OSError:  # not there yet
            continue
    return found


@dataclass
class Tally:
    """What became of the kills so far."""

    kills: int = 0
    amid: int = 0  # those that left a half-written file
    runs: int = 0
    lost: list[str] = field(default_factory=list)  # one sentence each

    def numbers(self) -> dict[str, float]:
        counts = {"kills": self.kills, "amid_writing": self.amid, "runs": self.runs, "lost": len(self.lost)}
        return {f"resume/{name}": float(count) for name, count in counts.items()}


def killed(life: Life, folder: Path, moment: float, amid: bool) -> int:
    """The life's exit code, if it is killed at this moment, or as soon after it as a file is being written."""
    end = time.monotonic() + moment
    while time.monotonic() < end and not life.is_over():
        time.sleep(0.001)
    while amid and not half_written(folder) and not life.is_over() and time.monotonic() < end + PATIENCE:
        pass
    life.kill()
    return life.wait()


def spoilt(life: Life, code: int, folder: Path, whole: Path) -> str:
    """What is wrong with a run that has been resumed to its end; nothing if it ended as if it had been left alone."""
    text = life.log.read_text(errors="replace")
    if code or "Traceback" in text:
        return f"it ended with code {code}: {text.strip().splitlines()[-1:]}"
    differ = [name for name in EXACT if (folder / name).read_bytes() != (whole / name).read_bytes()]
    left = [path.name for path in half_written(folder)]
    return f"{', '.join(differ)} differ" if differ else f"{', '.join(left)} is left" if left else ""


def last_life(folder: Path, moments: random.Random, longest: float, kills: int, tally: Tally) -> tuple[Life, int]:
    """Lives of one run until it has ended, at most `kills` of them killed; the last one, and its exit code."""
    for _ in range(kills):
        life = live(folder)
        code = killed(life, folder, moments.uniform(0, longest), amid=moments.random() < 0.5)
        if code != -signal.SIGKILL:
            return life, code
        tally.kills, tally.amid = tally.kills + 1, tally.amid + bool(half_written(folder))
    life = live(folder)
    return life, life.wait()


def measure(kills: int) -> dict[str, float]:
    """So many kills, each of a run that is then resumed to its end."""
    for late in ("geonpg.scripts.runs.training", "torch._dynamo"):  # here once, and not by every life
        import_module(late)
    tqdm.monitor_interval = 0  # a thread would not survive a fork
    moments, tally = random.Random(SEED), Tally()
    with TemporaryDirectory() as name, tqdm(total=kills, desc="kills", leave=False, disable=None) as bar:
        whole, began = Path(name) / "whole", time.monotonic()
        first = live(whole)
        if problem := spoilt(first, first.wait(), whole, whole):
            raise RuntimeError(f"the run that is left alone failed: {problem}")
        longest = (time.monotonic() - began) * 2 / 3  # most lives shall not come to their end
        while tally.kills < kills:
            folder, tally.runs = Path(name) / f"run{tally.runs}", tally.runs + 1
            life, code = last_life(folder, moments, longest, min(KILLS_PER_RUN, kills - tally.kills), tally)
            bar.update(tally.kills - bar.n)
            if problem := spoilt(life, code, folder, whole):
                tally.lost.append(problem)
                tqdm.write(f"run {tally.runs}: {problem}", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)
    return tally.numbers()


def table(results: dict[str, float]) -> str:
    kills, amid, runs, lost = (int(number) for number in results.values())
    fate = f"{lost} runs were LOST or ended otherwise" if lost else "every run ended byte for byte as one left alone"
    return f"{kills} kills in {runs} runs, {amid} of them amid the writing of a file: {fate} ({', '.join(EXACT)})"

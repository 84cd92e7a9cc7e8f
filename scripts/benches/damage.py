"""Random damage to the files of a run, and random edits of its state behind valid checksums.

After each one the run is resumed, in this process. It must end byte for byte as a run that was left alone, or be
refused in one sentence with every file as it was: no traceback, nothing lost, never another result. An edit changes the
form of a state (keys, types, dtypes, shapes); with another number in it, it would be the state of another run.
"""

import io
import logging
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tqdm import tqdm

from geonpg.agents.checkpoint import Checkpoints, read, write
from geonpg.scripts.benches.edits import edited
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.common.stopping import Stopped
from geonpg.scripts.jobs.queue_local import STOPPED
from geonpg.scripts.runs import keeper
from geonpg.scripts.runs.arguments import parse
from geonpg.scripts.runs.folder import BEST, CHECKPOINTS, CONFIG, CURVE, EVALUATIONS, FACTS, FINAL
from geonpg.scripts.runs.run import Run
from geonpg.scripts.runs.training import train

SETTINGS = ("n_steps=8", "hidden=8", "critic_hidden=8", "eval_every=100", "eval_episodes=2", "env_threads=1")
ARGUMENTS = ("--env", "InvertedPendulum-v4", "--n-envs", "4", "--method", "geof", *(f"--set={key}" for key in SETTINGS))
STEPS, STOP = 448, 352  # of the whole run, and where a part of it was stopped
DAMAGES, EDITS, SEED = 1000, 200, 0
KINDS = ("damages", "edits")
EXACT = (FINAL, BEST, CURVE.file, EVALUATIONS.file)
LINE = "geonpg train: "


Harm = Callable[[Path, random.Random], tuple[str, list[Path]]]


class Outcome(NamedTuple):
    """What became of one damaged or edited run."""

    kind: str  # "damages" or "edits"
    fate: str  # "continued", "refused" or "lost"
    problem: str  # what is wrong with that, if anything is


@dataclass(frozen=True)
class DamageFindings(Findings):
    """What became of every case."""

    outcomes: Sequence[Outcome]

    def count(self, kind: str, fate: str) -> int:
        """Count the cases of a kind that had this fate."""
        return sum((outcome.kind, outcome.fate) == (kind, fate) for outcome in self.outcomes)

    @property
    def lost(self) -> int:
        """How many cases ended in a traceback, changed files or another result."""
        return sum(bool(outcome.problem) for outcome in self.outcomes)

    @property
    def failed(self) -> bool:
        return self.lost > 0

    def numbers(self) -> Numbers:
        counts = {f"{kind}_{fate}": self.count(kind, fate) for kind in KINDS for fate in ("continued", "refused")}
        return {"damage": {**counts, "lost": self.lost}}

    def table(self) -> str:
        lines = []
        for kind in KINDS:
            continued, refused = (self.count(kind, fate) for fate in ("continued", "refused"))
            lines.append(f"{kind}: {continued} continued byte for byte, {refused} were refused in a sentence")
        lost = f"{self.lost} were LOST, or had another result" if self.lost else "nothing lost, no other result"
        return "\n".join([*lines, lost])


def flip(data: bytearray, chance: random.Random) -> bytes:
    """Flip some bits."""
    for _ in range(chance.choice([1, 1, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def truncate(data: bytearray, chance: random.Random) -> bytes:
    """Cut the end off."""
    return bytes(data[: chance.randrange(len(data))])


def zero(data: bytearray, chance: random.Random) -> bytes:
    """Zero a part, as a disk does that lost a block."""
    begin, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return bytes(data[:begin]) + bytes(end - begin) + bytes(data[end:])


def append(data: bytearray, chance: random.Random) -> bytes:
    """Add random bytes."""
    return bytes(data) + chance.randbytes(chance.randint(1, 100))


def overwrite(data: bytearray, chance: random.Random) -> bytes:
    """Replace everything by random bytes."""
    return chance.randbytes(len(data))


CONTENT = (flip, truncate, zero, append, overwrite)


def damage(folder: Path, chance: random.Random) -> tuple[str, list[Path]]:
    """Do something to a run's files; return what it was, and to which."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path = chance.choice(files)
    kind = chance.randrange(len(CONTENT) + 3)
    if kind < len(CONTENT):
        change = CONTENT[kind]
        path.write_bytes(change(bytearray(path.read_bytes()), chance))
        return f"{change.__name__} {path.name}", [path]
    if kind == len(CONTENT):
        path.unlink()
        return f"remove {path.name}", [path]
    if kind == len(CONTENT) + 1:
        other = chance.choice([other for other in files if other != path])
        data = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
        return f"swap {path.name} and {other.name}", [path, other]
    shutil.rmtree(folder / CHECKPOINTS)
    return "remove checkpoints", []


def edit(folder: Path, chance: random.Random) -> tuple[str, list[Path]]:
    """Edit the state in the newest checkpoint, with a valid checksum; half the time, remove the older ones too."""
    *older, newest = Checkpoints(folder / CHECKPOINTS).paths()
    state, what = edited(read(newest), chance)
    write(newest, state)
    if chance.random() < 0.5:
        for path in older:
            path.unlink()
        what += ", without an older one"
    return f"edit {what}", [newest]


@contextmanager
def logged(stream: io.StringIO) -> Iterator[None]:
    """Send warnings to the stream alone."""
    root, handler = logging.getLogger(), logging.StreamHandler(stream)
    before, root.handlers = root.handlers, [handler]
    try:
        yield
    finally:
        root.handlers = before


@contextmanager
def saving_always() -> Iterator[None]:
    """Have runs write a checkpoint after every update."""
    before, keeper.CHECKPOINT_SECONDS = keeper.CHECKPOINT_SECONDS, 0.0
    try:
        yield
    finally:
        keeper.CHECKPOINT_SECONDS = before


def contents(folder: Path) -> dict[Path, bytes]:
    """Read every file."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def resumed(folder: Path, whole: Path, touched: list[Path]) -> tuple[str, str]:
    """Resume a harmed run; return its fate, and what is wrong with that if anything is."""
    before, said = contents(folder), io.StringIO()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said), logged(said):
            code = train(parse(["--resume", str(folder)]))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "lost", f"{type(error).__name__}: {traceback.format_exc().splitlines()[-3:]}"
    if code in STOPPED:  # by whoever wants the benchmark to stop
        raise KeyboardInterrupt
    last = said.getvalue().strip().split("\n")[-1]
    if code == 0:
        forgiven = {path.name for path in touched} & {BEST} if BEST in said.getvalue() else set()
        differ = [name for name in EXACT if name not in forgiven and not same(folder / name, whole / name)]
        return "continued", f"{', '.join(differ)} differ: another result" if differ else ""
    if code != 2 or not last.startswith(LINE) or "Traceback" in said.getvalue():
        return "lost", f"exit code {code}, {last!r}"
    return "refused", "" if contents(folder) == before else "it was refused, but its files were changed"


def same(one: Path, other: Path) -> bool:
    """Whether two files are equal."""
    return one.exists() and one.read_bytes() == other.read_bytes()


def part_of(whole: Path, folder: Path) -> Path:
    """Train the run again, stopped in the middle, with two checkpoints and every kind of file."""
    shutil.copytree(whole, folder)
    for path in contents(folder):
        if path.name not in (CONFIG, FACTS):
            path.unlink()
    run = Run.resume(folder)
    try:
        run.train(lambda: run.steps >= STOP)
    except Stopped:
        return folder
    raise RuntimeError("the run came to its end before it was stopped")


def measure(damages: int = DAMAGES, edits: int = EDITS) -> DamageFindings:
    """Damage and edit so many times, mostly a stopped run and now and then a finished one."""
    chance, outcomes = random.Random(SEED), list[Outcome]()
    harms: list[tuple[str, Harm]] = [*[("damages", damage)] * damages, *[("edits", edit)] * edits]
    with saving_always(), TemporaryDirectory() as name, tqdm(harms, desc="cases", leave=False, disable=None) as bar:
        whole, part, folder = (Path(name) / each for each in ("whole", "part", "run"))
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            train(parse([*ARGUMENTS, "--steps", str(STEPS), "--folder", str(whole)]))
        part_of(whole, part)
        for number, (kind, harm) in enumerate(bar):
            shutil.copytree(whole if number % 5 == 4 else part, folder)
            what, touched = harm(folder, chance)
            outcome = Outcome(kind, *resumed(folder, whole, touched))
            outcomes.append(outcome)
            if outcome.problem:
                tqdm.write(f"case {number}, {what}: {outcome.problem}", file=sys.stderr)
            shutil.rmtree(folder)
    return DamageFindings(outcomes)

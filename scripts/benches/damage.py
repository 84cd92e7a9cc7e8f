"""Random damage to the files of a run, and random edits of its state behind right checksums.

After each one the run is resumed, in this process. It must end byte for byte as a run that was left alone, or be
refused in one sentence with every file as it was: no traceback, nothing lost, never another result. An edit changes the
form of a state (keys, types, dtypes, shapes): another number in its place would be the state of another run.
"""

import io
import logging
import random
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tqdm import tqdm

from geonpg.agents.checkpoint import Checkpoints, read, write
from geonpg.scripts.benches.edits import edited
from geonpg.scripts.common.stopping import Stopped
from geonpg.scripts.jobs.queue_local import STOPPED
from geonpg.scripts.runs import keeper
from geonpg.scripts.runs.arguments import parse
from geonpg.scripts.runs.run import Run
from geonpg.scripts.runs.training import train

SETTINGS = ("n_steps=8", "hidden=8", "critic_hidden=8", "eval_every=100", "eval_episodes=2", "env_threads=1")
ARGUMENTS = ("--env", "InvertedPendulum-v4", "--n-envs", "4", "--method", "geof", *(f"--set={key}" for key in SETTINGS))
STEPS, STOP = 448, 352  # of the whole run, and where a part of it was stopped
DAMAGES, EDITS, SEED = 1000, 200, 0
EXACT = ("final.ckpt", "best.ckpt", "curve.csv", "evaluations.csv")
LINE = "geonpg train: "


def flip(data: bytearray, chance: random.Random) -> bytes:
    """Some bits."""
    for _ in range(chance.choice([1, 1, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def truncate(data: bytearray, chance: random.Random) -> bytes:
    return bytes(data[: chance.randrange(len(data))])


def zero(data: bytearray, chance: random.Random) -> bytes:
    """A part, as a disk does that lost a block."""
    begin, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return bytes(data[:begin]) + bytes(end - begin) + bytes(data[end:])


def append(data: bytearray, chance: random.Random) -> bytes:
    return bytes(data) + chance.randbytes(chance.randint(1, 100))


def overwrite(data: bytearray, chance: random.Random) -> bytes:
    return chance.randbytes(len(data))


CONTENT = (flip, truncate, zero, append, overwrite)


def damage(folder: Path, chance: random.Random) -> tuple[str, list[Path]]:
    """Do something to a run's files; what it was, and to which."""
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
    shutil.rmtree(folder / "checkpoints")
    return "remove checkpoints", []


def edit(folder: Path, chance: random.Random) -> tuple[str, list[Path]]:
    """Edit the state in the newest checkpoint, with a right checksum; in half of the cases it is the only one."""
    *older, newest = Checkpoints(folder / "checkpoints").paths()
    state, what = edited(read(newest), chance)
    write(newest, state)
    if chance.random() < 0.5:
        for path in older:
            path.unlink()
        what += ", without an older one"
    return f"edit {what}", [newest]


@dataclass
class Tally:
    """What became of the cases so far."""

    fates: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)

    def numbers(self) -> dict[str, float]:
        names = [f"{kind}_{fate}" for kind in ("damages", "edits") for fate in ("continued", "refused")]
        counts = {**{name: self.fates[name] for name in names}, "lost": len(self.lost)}
        return {f"damage/{name}": float(count) for name, count in counts.items()}


@contextmanager
def logged(stream: io.StringIO) -> Iterator[None]:
    """Inside, warnings go to the stream alone."""
    root, handler = logging.getLogger(), logging.StreamHandler(stream)
    before, root.handlers = root.handlers, [handler]
    try:
        yield
    finally:
        root.handlers = before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def outcome(folder: Path, whole: Path, touched: list[Path]) -> tuple[str, str]:
    """How the resumed run fared, "continued" or "refused"; and in words what is wrong with that, if anything is."""
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
        forgiven = {path.name for path in touched} & {"best.ckpt"} if "best.ckpt" in said.getvalue() else set()
        differ = [name for name in EXACT if name not in forgiven and not same(folder / name, whole / name)]
        return "continued", f"{', '.join(differ)} differ: another result" if differ else ""
    if code != 2 or not last.startswith(LINE) or "Traceback" in said.getvalue():
        return "lost", f"exit code {code}, {last!r}"
    return "refused", "" if contents(folder) == before else "it was refused, but its files were changed"


def same(one: Path, other: Path) -> bool:
    return one.exists() and one.read_bytes() == other.read_bytes()


def part_of(whole: Path, folder: Path) -> Path:
    """The same run, stopped in the middle, with two checkpoints and all kinds of files."""
    shutil.copytree(whole, folder)
    for path in contents(folder):
        if path.name not in ("config.toml", "run.json"):
            path.unlink()
    run = Run.resume(folder)
    try:
        run.train(lambda: run.steps >= STOP)
    except Stopped:
        return folder
    raise RuntimeError("the run came to its end before it was stopped")


Harm = Callable[[Path, random.Random], tuple[str, list[Path]]]


def measure(damages: int = DAMAGES, edits: int = EDITS) -> dict[str, float]:
    """So many cases of damage, of a stopped run and now and then of a finished one, and so many edits."""
    chance, tally = random.Random(SEED), Tally()
    cases: list[tuple[str, Harm]] = [*[("damages", damage)] * damages, *[("edits", edit)] * edits]
    seconds, keeper.CHECKPOINT_SECONDS = keeper.CHECKPOINT_SECONDS, 0.0
    try:
        with TemporaryDirectory() as name, tqdm(cases, desc="cases", leave=False, disable=None) as bar:
            whole, part, folder = (Path(name) / each for each in ("whole", "part", "run"))
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                train(parse([*ARGUMENTS, "--steps", str(STEPS), "--folder", str(whole)]))
            part_of(whole, part)
            for number, (kind, harm) in enumerate(bar):
                shutil.copytree(whole if number % 5 == 4 else part, folder)
                what, touched = harm(folder, chance)
                fate, problem = outcome(folder, whole, touched)
                tally.fates[f"{kind}_{fate}"] += 1
                if problem:
                    tally.lost.append(f"{what}: {problem}")
                    tqdm.write(f"case {number}, {what}: {problem}", file=sys.stderr)
                shutil.rmtree(folder)
    finally:
        keeper.CHECKPOINT_SECONDS = seconds
    return tally.numbers()


def table(results: dict[str, float]) -> str:
    count = {name.removeprefix("damage/"): int(number) for name, number in results.items()}
    lines = []
    for kind in ("damages", "edits"):
        continued, refused = (count[f"{kind}_{fate}"] for fate in ("continued", "refused"))
        lines.append(f"{kind}: {continued} continued byte for byte, {refused} were refused in a sentence")
    lost = f"{count['lost']} were LOST, or had another result" if count["lost"] else "nothing lost, no other result"
    return "\n".join([*lines, lost])

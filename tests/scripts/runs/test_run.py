"""Runs are exact: killed, stopped, starved of disk, extended or repeated, they end with the same bytes."""

import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from short_runs import results
from training_processes import Death, Nursery, nursery

from geonpg.agents.checkpoint import Checkpoints, read
from geonpg.scripts.models import loading as models
from geonpg.scripts.runs.folder import compact, finish
from geonpg.scripts.runs.run import Run

KEYS = ("n_steps=32", "hidden=16", "critic_hidden=16", "eval_every=1000", "eval_episodes=2", "env_threads=1")
SMALL = ("--env", "InvertedPendulum-v4", "--n-envs", "8", *(f"--set={key}" for key in KEYS))
STEPS, KILLS = 3072, 20


@pytest.fixture(scope="module")
def home() -> Iterator[Nursery]:
    """Lives here save after every update."""
    with nursery(checkpoint_seconds=0) as place:
        yield place


def done(death: Death) -> None:
    assert death.code == 0, death.err


def train(home: Nursery, folder: Path, *arguments: str, steps: int = STEPS) -> Path:
    """A run from its beginning to its end."""
    done(home.live(*SMALL, "--steps", str(steps), "--folder", folder, *arguments).wait())
    return folder


def go_on(home: Nursery, folder: Path, *arguments: str) -> None:
    done(home.live("--resume", folder, *arguments).wait())


@pytest.fixture(scope="module")
def whole(home: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(home, tmp_path_factory.mktemp("runs") / "whole")


def policy_of(folder: Path) -> dict[str, bytes]:
    """Every number of the policy and its normalisation."""
    model = read(folder / "final.ckpt")
    return {name: array.numpy().tobytes() for name, array in model["policy"].items()} | {
        name: bytes(model["normalization"][name]) for name in ("mean", "squares")
    }


def stopped(home: Nursery, folder: Path, number: int, *arguments: str) -> Death:
    """A run that was stopped by this signal in the middle; tried again if that came too late."""
    while True:
        life = home.live(*SMALL, "--steps", str(STEPS), "--folder", folder, *arguments)
        patience = time.monotonic() + 60
        while not Checkpoints(folder / "checkpoints").paths() and time.monotonic() < patience:
            time.sleep(0.005)
        life.kill(number)
        death = life.wait()
        if death.code:
            return death
        shutil.rmtree(folder)


def test_twenty_kills_change_nothing(home: Nursery, whole: Path, tmp_path: Path) -> None:
    """A run is killed and resumed until it ends, then another one, until twenty kills have come at any moment."""
    started = time.monotonic()
    assert results(train(home, tmp_path / "again")) == results(whole)
    longest_life = (time.monotonic() - started) / 3
    moments, kills, amid, runs = random.Random(0), 0, 0, 0
    while kills < KILLS:
        runs, folder, ended = runs + 1, tmp_path / str(runs), False
        while not ended:
            new = (*SMALL, "--steps", str(STEPS), "--folder", folder)
            life = home.live(*(("--resume", folder) if folder.exists() else new))
            if kills < KILLS:
                time.sleep(moments.uniform(0, longest_life))
                life.kill()
            death = life.wait()
            assert death.code in (0, -signal.SIGKILL), death.err
            ended, kills = death.code == 0, kills + (death.code != 0)
            amid += not ended and bool(Checkpoints(folder / "checkpoints").paths())
        assert results(folder) == results(whole)
        assert not list(folder.rglob(".*"))  # nothing half-written is left behind
    assert amid >= 5  # kills that cost something


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_from_outside_changes_nothing(number: int, home: Nursery, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    death = stopped(home, folder, number)
    assert death.code == 128 + number, death.err
    assert death.out.endswith(f"; go on with: geonpg train --resume {folder}\n")
    assert re.search(r"steps, \S+/s, return \S+, \S+ left\n$", death.err)  # the progress bar, and no more
    go_on(home, folder)
    assert results(folder) == results(whole)


def test_a_full_disk_lets_no_run_begin(home: Nursery, tmp_path: Path) -> None:
    death = home.live(*SMALL, "--folder", tmp_path / "run", largest_file=100).wait()
    assert (death.code, death.err) == (2, f"geonpg train: [Errno 27] File too large: '{tmp_path / 'run'}'\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("largest_file", [100, 20_000], ids=["nothing", "no checkpoint"])
def test_a_full_disk_ends_a_run_that_can_go_on(largest_file: int, home: Nursery, whole: Path, tmp_path: Path) -> None:
    """The disk takes nothing, or all but a checkpoint."""
    folder = tmp_path / "run"
    assert stopped(home, folder, signal.SIGTERM).code == 143
    kept = {path: path.read_bytes() for path in (folder / "checkpoints").iterdir()}
    death = home.live("--resume", folder, largest_file=largest_file).wait()
    sentence = death.err.splitlines()[-1]
    assert death.code == 2
    assert sentence.startswith(f"geonpg train: {folder} ended at ")
    assert "File too large" in sentence
    assert "Traceback" not in death.err
    assert {path: path.read_bytes() for path in (folder / "checkpoints").iterdir()} == kept
    go_on(home, folder)
    assert results(folder) == results(whole)


def test_another_seed_gives_another_policy(home: Nursery, whole: Path, tmp_path: Path) -> None:
    assert policy_of(train(home, tmp_path / "other", "--seed", "1")) != policy_of(whole)


def test_threads_of_the_environments_change_nothing(home: Nursery, whole: Path, tmp_path: Path) -> None:
    two = train(home, tmp_path / "two", "--set=env_threads=2")
    assert policy_of(two) == policy_of(whole)
    for name in ("curve.csv", "evaluations.csv"):
        assert (two / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("method", ["ng", "mid", "geo", "geof"])
def test_every_method_resumes_exactly(method: str, home: Nursery, tmp_path: Path) -> None:
    whole, part = train(home, tmp_path / "whole", "--method", method), tmp_path / "part"
    assert stopped(home, part, signal.SIGTERM, "--method", method).code == 143
    go_on(home, part)
    assert results(part) == results(whole)


def test_a_finished_run_can_be_extended(home: Nursery, tmp_path: Path) -> None:
    """If its steps are not annealed, it is then the longer run, to the last bit."""
    constant = ("--set", "anneal=false")
    whole = train(home, tmp_path / "whole", *constant)
    folder = train(home, tmp_path / "run", *constant, steps=2048)
    short = results(folder)
    go_on(home, folder, "--steps", str(STEPS))
    assert policy_of(folder) == policy_of(whole)
    assert (folder / "curve.csv").read_bytes().startswith(short["curve.csv"])
    assert (folder / "evaluations.csv").read_bytes().startswith(short["evaluations.csv"])
    assert read(folder / "final.ckpt")["settings"]["steps"] == STEPS


def test_results_that_are_left_of_a_run_stay(whole: Path, tmp_path: Path) -> None:
    """`geonpg compare` keeps no checkpoints of what has ended: to resume it must not begin it anew."""
    folder = shutil.copytree(whole, tmp_path / "run")
    finish(folder)
    compact(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match="has ended and holds its results only"):
        Run.resume(folder, 2 * STEPS)
    with pytest.raises(ValueError, match="there is none: of a run that has ended, geonpg compare keeps results only"):
        models.load(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

"""`geonpg train --seeds`: a run for every seed, as `train` makes it alone."""

import signal
from functools import partial
from pathlib import Path

import pytest
from commands import exit_code, refused

from geonpg.scripts import train
from geonpg.scripts.jobs.queue import Queue
from geonpg.scripts.runs import bar
from geonpg.scripts.runs.folder import DONE
from geonpg.scripts.runs.run import Run

KEYS = ("n_steps=16", "hidden=8", "critic_hidden=8", "eval_every=500", "eval_episodes=2")
TINY = ["--env", "InvertedPendulum-v4", "--n-envs", "4", "--steps", "1024", *(f"--set={key}" for key in KEYS)]
EXACT = ("curve.csv", "evaluations.csv")


main = partial(exit_code, train.main)


def stop_at(steps: int, patch: pytest.MonkeyPatch) -> None:
    """Runs of this process get a signal there."""

    def watch(self: bar.Bar, run: Run) -> None:
        if run.steps == steps:
            signal.raise_signal(signal.SIGTERM)

    patch.setattr(bar.Bar, "__call__", watch)


def test_every_seed_is_the_run_that_train_makes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them was stopped before, and is gone on with; what is done is not repeated."""
    alone, together = tmp_path / "alone", tmp_path / "to gether"
    with monkeypatch.context() as patch:
        stop_at(256, patch)
        assert main(*TINY, "--seed", "4", "--runs", together) == 143
    (stopped,) = together.iterdir()
    for seed in (4, 7):
        assert main(*TINY, "--seed", str(seed), "--runs", alone) == 0
    capsys.readouterr()

    command = (*TINY, "--seeds", "4,7", "--runs", together)
    assert main(*command) == 0
    names = sorted(path.name for path in alone.iterdir())
    assert sorted(path.name for path in together.iterdir()) == names == [stopped.name, f"{stopped.name[:-1]}7"]
    for name in names:
        assert all((together / name / file).read_bytes() == (alone / name / file).read_bytes() for file in EXACT)
        assert list((together / name / "checkpoints").iterdir())
    out, err = capsys.readouterr()
    assert err.splitlines()[-1].startswith("2 of 2 runs done, 2,048 of 2,048 steps, ")
    lines = out.splitlines()
    assert lines[0] == f"2 of 2 runs are done in {together}"
    assert [line.split(":")[0].strip() for line in lines[1:4]] == [*names, "mean over seeds"]
    assert lines[-2].startswith(f"watch it:    geonpg evaluate '{together}/")
    assert lines[-1] == f"the curves:  tensorboard --logdir '{together}'"

    before = {path: path.stat().st_mtime_ns for path in together.rglob("*")}
    assert main(*command) == 0
    assert capsys.readouterr() == (out, "")
    assert {path: path.stat().st_mtime_ns for path in together.rglob("*")} == before

    assert main("--resume", stopped, "--steps", "2048") == 0  # alone, and further than the others
    assert not (stopped / DONE).exists()
    assert main(*command) == 2
    assert f"{stopped} was begun for 2048 steps, not 1024: say so by --steps" in capsys.readouterr().err


def test_a_signal_stops_the_queue_and_it_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Queue, "advance", lambda queue: signal.raise_signal(signal.SIGINT))
    assert main("--env", "InvertedPendulum-v4", "--seeds", "0-2", "--runs", tmp_path / "my runs") == 130
    out = capsys.readouterr().out
    command = f"geonpg train --env InvertedPendulum-v4 --seeds 0-2 --runs '{tmp_path}/my runs'"
    assert out == f"stopped: 0 of 3 runs are done in {tmp_path}/my runs; go on with: {command}\n"


WRONG = {
    "--env Walker2d-v4 --seeds 0-99999999999": "seeds go up from 0 to 4,294,967,295 at most, not 0-99999999999",
    "--env Walker2d-v4 --seeds 0-5000": "5,001 seeds are too many: give 1,000 at most",
    "--env Walker2d-v4 --seeds two": "seeds are given as 0-4 or 0,2,5, not 'two'",
    "--env Walker2d-v4 --seeds 0-4 --seed 3": "--seeds makes several runs: --seed is for one",
    "--env Walker2d-v4 --seeds 0-4 --folder x": "--seeds makes several runs: --folder is for one",
    "--resume x --seeds 0-4": "a run keeps its settings: --resume takes --steps beside it, not --seeds",
    "--env Walker2d-v4 --jobs 2": "--jobs says how many runs of --seeds are made at a time: it goes with --seeds",
    "--env Walker2d-v4 --seeds 0-4 --jobs 0": "argument --jobs: must be from 1 to 1,000, not 0",
    "--env Walker-v4 --seeds 0-4": "unknown environment 'Walker-v4'",
    "--env Walker2d-v4 --seeds 0-4 --set n_env=3": "unknown key 'n_env' (did you mean n_envs?)",
    "--env Walker2d-v4 --seeds 0-4 --set n_steps=1e6 --n-envs 16384": "GB of memory, and this machine has ",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_argument_is_one_sentence_before_any_folder_is_made(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert WRONG[arguments] in refused(capsys, train.main, *arguments.split())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_run_is_not_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "InvertedPendulum-v4_default_geo_1"
    other = ["--env", "InvertedPendulum-v4", "--steps", "64", "--n-envs=2", "--set=n_steps=32", "--set=eval_episodes=1"]
    assert main(*other, "--folder", folder) == 0
    assert main("--env", "InvertedPendulum-v4", "--seeds", "0-1", "--runs", tmp_path) == 2
    assert f"{folder} holds another run, which differs in n_envs (2 and 16)" in capsys.readouterr().err

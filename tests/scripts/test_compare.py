"""`geonpg compare` from the outside: real processes that finish, fail, are stopped and are killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from commands import exit_code, refused

from geonpg.scripts import compare
from geonpg.scripts.runs.folder import COMPACT, is_done

STUDY = """
[[group]]
methods = ["geo", "ng"]
label = "tiny"
set = {n_envs = 8, n_steps = 32, hidden = [16], critic_hidden = [16]}
envs = ["InvertedPendulum-v4"]
seeds = [1]
steps = 10240
eval_every = 4000
eval_episodes = 2
"""
NAMES = [f"InvertedPendulum-v4/tiny/{method}/1" for method in ("geo", "ng")]
EXACT = ("curve.csv", "evaluations.csv", "done.json")


main = partial(exit_code, compare.main)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def whole(study: Path) -> Path:
    """The study, never interrupted."""
    results = study.parent / "whole"
    assert main(study, "--results", results, "--jobs", "2") == 0
    return results


def exact(results: Path) -> dict[str, bytes]:
    return {f"{name}/{file}": (results / name / file).read_bytes() for name in NAMES for file in EXACT}


def test_finished_runs_are_compact_and_never_repeated(
    study: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    assert sorted(str(path.relative_to(whole)) for path in files if path.is_file()) == sorted(
        f"{name}/{file}" for name in NAMES for file in COMPACT
    )
    assert main(study, "--results", whole) == 0
    assert capsys.readouterr() == (f"2 of 2 runs are done in {whole}\n", "")
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == files


def until(condition: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    """Or until the process has ended."""
    while not condition() and process.poll() is None:
        time.sleep(0.005)


def started(command: list[str]) -> "subprocess.Popen[str]":
    """In a process group of its own."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def test_stopped_and_killed_it_ends_with_the_same_bytes(study: Path, whole: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    command = [sys.executable, "-m", "geonpg.scripts.compare", str(study), "--results", str(results), "--jobs", "1"]
    command.append("--no-compact")

    with started(command) as process:
        until(lambda: list(results.rglob("curve.csv")), process)
        process.terminate()  # compare alone: it must see to its children
        out, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, err
    assert out.startswith("stopped: ")
    assert out.endswith(f" of 2 runs are done in {results}; go on with: geonpg compare {' '.join(command[3:])}\n")
    assert list(results.rglob("step_*.ckpt"))  # they have saved
    assert err.endswith("stopping: the runs save their state\n")

    with started(command) as process:
        until(lambda: (results / NAMES[1] / "curve.csv").exists(), process)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not all(is_done(results / name) for name in NAMES)

    assert main(*command[3:]) == 0
    assert exact(results) == exact(whole)
    assert all((results / name / "final.ckpt").exists() for name in NAMES)
    before = sorted(results.rglob("*"))
    assert main(study, "--results", results) == 0
    assert sorted(results.rglob("*")) == before


def test_A1_what_an_earlier_command_kept_stays(
    study: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Models of `--no-compact`, and a user's notes."""
    results = shutil.copytree(whole, tmp_path / "results")
    for file in ("final.ckpt", "best.ckpt", "notes.txt", "checkpoints/step_000000010240.ckpt"):
        (results / NAMES[0] / file).parent.mkdir(exist_ok=True)
        (results / NAMES[0] / file).write_text("kept")
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    assert main(study, "--results", results) == 0
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before
    assert "dropped" not in capsys.readouterr().err


BROKEN = """
import gymnasium
from gymnasium import spaces

class Broken(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def step(self, action):
        raise RuntimeError("the motor burns")

gymnasium.register("Broken-v0", Broken)
"""


def test_a_failing_run_is_reported_and_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "burning_world.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    results, broken = tmp_path / "results", "burning_world:Broken-v0"
    flags = ("--envs", f"{broken},InvertedPendulum-v4", "--seeds", "3", "--steps", "500", "--results", results)
    assert main("--baselines", "a2c", *flags, "--jobs", "2") == 1
    out, err = capsys.readouterr()
    assert out == f"1 of 2 runs are done in {results}\n"
    told = f"environment 0 of {broken} raised RuntimeError: the motor burns"
    assert err.splitlines()[-1] == f"{broken}/a2c/default/3 failed: geonpg.scripts.runs.baseline: {told}"
    assert "1 of 2 runs done, 1 failed, " in err
    assert is_done(results / "InvertedPendulum-v4/a2c/default/3")


WRONG = {
    "": "name a study file, or --envs with --methods or --baselines",
    "--methods geo": "name a study file, or --envs with --methods or --baselines",
    "study.toml --steps 5": "the study file says what is run: it takes no --steps beside it",
    "study.toml --envs Hopper-v4": "the study file says what is run: it takes no --envs beside it",
    "foreign.toml": "the study asks for the module 'nowhere', whose import runs code: if you trust it, name it by ",
    "foreign.toml --envs nowhere:Fly-v0": "environment 'nowhere:Fly-v0' cannot be made: No module",
    "deep.toml": "deep.toml: tables and lists may be nested 10 levels deep, not more",  # B7
    "missing.toml": "cannot read study missing.toml: No such file or directory",
    "study.toml --jobs 0": "argument --jobs: must be from 1 to 1,000, not 0",
    "--envs Hopper-v4 --methods newton": "group 1: method must be one of ng, mid, geo, geof, not 'newton'",
    "--envs Hoper-v4 --methods geo": "unknown environment 'Hoper-v4' (did you mean Hopper-v4?): choose one of ",
    "--envs Hopper-v4 --methods geo --seeds x": "seeds are given as 0-4 or 0,2,5, not 'x'",
    "--envs Hopper-v4 --baselines sac9": "group 1: unknown algorithm 'sac9': choose one of ppo, a2c, trpo",
    "study.toml --results study.toml/x": "[Errno 20] Not a directory: 'study.toml/x'",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_argument_is_one_sentence(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes before any work: nothing has been made."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "foreign.toml").write_text(STUDY.replace("InvertedPendulum-v4", "nowhere:Fly-v0"))  # A5
    (tmp_path / "deep.toml").write_text(f"group = {'[' * 3000}{']' * 3000}")
    said = refused(capsys, compare.main, *arguments.split())
    assert said.startswith(f"geonpg compare: {WRONG[arguments]}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep.toml", "foreign.toml", "study.toml"]


def test_results_of_other_settings_are_not_taken_for_these(
    study: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.toml"
    other.write_text(STUDY.replace("[16]", "[17]", 1))
    before = exact(whole)
    assert main(other, "--results", whole) == 2
    err = capsys.readouterr().err
    assert f"{whole / NAMES[0]} was made with other settings, hidden ([16] and [17]): " in err
    assert exact(whole) == before

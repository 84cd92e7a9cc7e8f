"""`geonpg train` from the outside: wrong input, damaged checkpoints, broken environments, signals."""

import logging
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from commands import exit_code, refused
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from short_runs import after_updates, forget, results, write_module

from geonpg.agents import checkpoint
from geonpg.agents.checkpoint import Checkpoints, read, write
from geonpg.configs import FIELDS, names
from geonpg.scripts import train
from geonpg.scripts.common import stopping
from geonpg.scripts.runs import keeper
from geonpg.scripts.runs.building import check_actions

KEYS = ("n_steps=32", "hidden=16", "critic_hidden=16", "eval_every=1000", "eval_episodes=2", "env_threads=1")
SMALL = [f"--set={key}" for key in KEYS]
TINY = ["--env", "InvertedPendulum-v4", "--n-envs", "8", "--steps", "2048", *SMALL]


main = partial(exit_code, train.main)


ONE_OF_TWO = "name an environment by --env, or a run to go on with by --resume"
KEEPS = "a run keeps its settings: --resume takes --steps beside it, not "
WRONG = {
    "": [ONE_OF_TWO],
    "--env Walker-v4": [
        "unknown environment 'Walker-v4' (did you mean Walker2d-v4?): choose one of ",
        "Walker2d-v4",
        "any id that gymnasium knows",
    ],
    "--env nowhere:Walker2d-v4": ["environment 'nowhere:Walker2d-v4' cannot be made: No module named 'nowhere'"],
    "--env ALE/Pong-v5": ["unknown environment 'ALE/Pong-v5': Atari's come with ale-py (pip install ale-py)"],
    "--env ale_py:ALE/Pong-v5": ["'ale_py:ALE/Pong-v5' cannot be made: ", "(pip install ale-py)"],
    "--env Walker2d-v4 --method newton": ["method must be one of ng, mid, geo, geof, not 'newton'"],
    "--env Walker2d-v4 --preset papr": ["unknown preset 'papr' (did you mean paper?): choose one of ", *names()],
    "--env Walker2d-v4 --set n_env=3": ["unknown key 'n_env' (did you mean n_envs?): choose one of ", *FIELDS],
    "--env Walker2d-v4 --set gamma=2": ["gamma must be a finite number in [0, 1], not 2.0"],
    "--env Walker2d-v4 --set hidden=big": [
        "hidden must be integers from 1 to 16,384, at most 64 of them, such as 64,64, not 'big'"
    ],
    "--env Walker2d-v4 --set gamma": ["a setting is given as key=value, not 'gamma'"],
    "--env Walker2d-v4 --steps -5": ["steps must be an integer from 1 to 999,999,999,999, not -5"],
    "--env Walker2d-v4 --steps many": ["argument --steps: must be a whole number, such as 200000 or 2e5, not 'many'"],
    "--env Walker2d-v4 --n-envs 0": ["n_envs must be an integer from 1 to 16,384, not 0"],
    "--env Walker2d-v4 --seed -1": ["argument --seed: must be from 0 to 4,294,967,295, not -1"],
    "--env Walker2d-v4 --device tpu": ["device 'tpu' is not here: choose one of cpu"],
    "--env Walker2d-v4 --folder taken": ["taken is no run folder: ", "; choose another folder by --folder"],
    "--env Walker2d-v4 --runs file": ["Not a directory: 'file/Walker2d-v4_default_geo_0'"],
    "--env Walker2d-v4 --runs /proc/runs": ["No such file or directory: '/proc/runs/Walker2d-v4_default_geo_0'"],
    "--env CartPole-v1 --set scale_actions=true": ["scale_actions is for continuous actions", "takes Discrete(2)"],
    "--env CartPole-v1 --set log_std_init=1": ["log_std_init is for continuous actions", "takes Discrete(2)"],
    "--resume missing": ["missing is no run folder: ", "'missing/run.json'"],
    "--resume taken": ["taken is no run folder: ", "'taken/run.json'"],
    "--env Walker2d-v4 --resume taken": ["taken is no run folder: ", "'taken/run.json'"],
    "--resume taken --method ng": [KEEPS + "--method"],
    "--resume taken --n-envs 3": [KEEPS + "--n-envs"],
    "--resume taken --set gamma=1": [KEEPS + "--set"],
}


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_argument_is_one_sentence(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes before any work: nothing has been made."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ale_py", None)  # whether it is installed or not
    sentence = refused(capsys, train.main, *arguments.split())
    assert all(part in sentence for part in WRONG[arguments])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "taken"]


def test_A5_a_run_folder_imports_no_module_that_was_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = write_module(tmp_path, monkeypatch)
    env, folder = f"{module}:Walk-v0", tmp_path / "run"
    tiny = ("--n-envs", "2", "--steps", "128", *SMALL, "--folder", folder)
    assert main("--env", env, *tiny) == 0
    forget(module)
    asks = f"{folder} asks for the module {module!r}, whose import runs code: if you trust it, name it by --env {env}\n"
    assert refused(capsys, train.main, "--resume", folder) == f"geonpg train: {asks}"
    assert refused(capsys, train.main, "--resume", folder, "--env", "CartPole-v1") == (
        f"geonpg train: {folder} is of {env}: --env must say the same, not CartPole-v1\n"
    )
    assert module not in sys.modules
    assert main("--resume", folder, "--env", env, "--steps", "192") == 0


def test_A5_a_stopped_run_says_how_to_name_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env, folder = f"{write_module(tmp_path, monkeypatch)}:Walk-v0", tmp_path / "run"
    monkeypatch.setattr(stopping.Signals, "__call__", lambda signals: True)
    assert main("--env", env, "--n-envs", "2", "--steps", "999", *SMALL, "--folder", folder) == 128 + signal.SIGTERM
    assert capsys.readouterr().out.endswith(f"go on with: geonpg train --resume {folder} --env {env}\n")


def test_settings_of_continuous_actions_may_be_given_where_they_say_nothing_new() -> None:
    check_actions("CartPole-v1", {"scale_actions": False, "gamma": 0.9})
    check_actions("Pendulum-v1", {"scale_actions": True, "log_std_init": 1.0})


def stop_after(updates: int, number: signal.Signals, patch: pytest.MonkeyPatch) -> None:
    """From now on a run gets this signal while it makes an update, and saves a checkpoint after each."""
    after_updates(updates - 1, lambda run: signal.raise_signal(number), patch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from its beginning to its end."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert main(*TINY, "--folder", folder) == 0
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, stopped in the middle."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.MonkeyPatch.context() as patch:
        stop_after(5, signal.SIGTERM, patch)
        assert main(*TINY, "--folder", folder) == 143
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_that_can_go_on(
    number: signal.Signals,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, folder = signal.getsignal(number), tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_after(3, number, patch)
        assert main(*TINY, "--folder", folder) == 128 + number
    assert signal.getsignal(number) is before
    assert capsys.readouterr().out == f"stopped at 768 steps; go on with: geonpg train --resume {folder}\n"
    assert Checkpoints(folder / "checkpoints").paths()[-1].name == "step_000000000768.ckpt"
    assert not (folder / "final.ckpt").exists()
    assert main("--resume", folder) == 0
    assert results(folder) == results(whole)


def test_a_finished_run_says_so(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    for steps in ([], ["--steps", "2048"]):
        assert main("--resume", whole, *steps) == 0
        assert capsys.readouterr().out.startswith(f"{whole} is complete: ")
    assert "has made 2048 steps already: --steps must be more, not 100" in refused(
        capsys, train.main, "--resume", whole, "--steps", "100"
    )
    assert "steps must be an integer from 1 to 999,999,999,999, not -1" in refused(
        capsys, train.main, "--resume", whole, "--steps", "-1"
    )
    assert {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()} == before


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def make_foreign(path: Path) -> None:
    np.savez(path.with_suffix(".npz"), weights=np.zeros(3))
    path.with_suffix(".npz").replace(path)


def make_of_another_version(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", 12)
        write(path, {})


DAMAGES = {
    truncate: "is truncated or damaged: its checksum does not fit",
    flip_a_bit: "is truncated or damaged: its checksum does not fit",
    make_foreign: "is not a geonpg checkpoint",
    make_of_another_version: "was written by format version 12, and this version reads 1",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    damage: Callable[[Path], None], whole: Path, stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    newest = Checkpoints(folder / "checkpoints").paths()[-1]
    damage(newest)
    with caplog.at_level(logging.WARNING):
        assert main("--resume", folder) == 0
    assert f"{newest} {DAMAGES[damage]}; trying the checkpoint before it" in caplog.messages
    assert results(folder) == results(whole)


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_a_readable_checkpoint_all_are_named(
    damage: Callable[[Path], None], stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    paths = Checkpoints(folder / "checkpoints").paths()
    for path in paths:
        damage(path)
    before = sorted(folder.rglob("*"))
    sentence = refused(capsys, train.main, "--resume", folder)
    assert f"{folder / 'checkpoints'} holds no readable checkpoint: " in sentence
    assert len(paths) == 2
    assert all(f"{path} {DAMAGES[damage]}" in sentence for path in paths)
    assert sorted(folder.rglob("*")) == before


def test_a_checkpoint_of_another_run_is_refused(
    whole: Path, stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(stopped, tmp_path / "run")
    newest = Checkpoints(folder / "checkpoints").paths()[-1]
    shutil.copy(whole / "final.ckpt", newest)
    assert f"{newest} belongs to another run, or {folder / 'config.toml'} was changed" in refused(
        capsys, train.main, "--resume", folder
    )
    folder = shutil.copytree(stopped, tmp_path / "changed")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("hidden = [16]", "hidden = [17]"))
    assert f"belongs to another run, or {config} was changed" in refused(capsys, train.main, "--resume", folder)


class Broken(gymnasium.Env[Any, Any]):
    """Environments with an odd seed return something that is not a number: at reset, or after 40 steps."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))

    def __init__(self, what: str) -> None:
        self.what, self.steps, self.breaks = what, 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.breaks |= seed is not None and seed % 2 == 1
        return self.observation_space.sample() * (np.nan if self.breaks and self.what == "reset" else 1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        broken = self.what if self.breaks and self.steps > 40 else ""
        observation, reward = self.observation_space.sample(), float(action[0])
        if broken == "observation":
            observation[1] = np.inf
        return observation, np.nan if broken == "reward" else reward, False, self.steps % 10 == 0, {}


@pytest.mark.parametrize("what", ["observation", "reward", "reset"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium sees it too, and only says so
def test_an_environment_that_returns_no_number(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keeper, "CHECKPOINT_SECONDS", 0.0)
    spec = EnvSpec(f"{what}-v0", entry_point=Broken, kwargs={"what": what})
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    assert main("--env", spec.id, *SMALL, "--set=n_steps=16", "--n-envs=3", "--folder", tmp_path / "run") == 2
    err = capsys.readouterr().err
    kind = {"reward": "a reward of nan", "reset": "an observation of nan"}.get(what, "an observation of inf")
    assert f": environment 1 of {spec.id} returned {kind}, which is not finite" in err
    step = 0 if what == "reset" else 96
    assert err.endswith(f"; go on from step {step} with: geonpg train --resume {tmp_path / 'run'}\n")
    assert "Traceback" not in err
    saved = Checkpoints(tmp_path / "run" / "checkpoints").paths()
    assert len(saved) == (0 if what == "reset" else 2)
    assert all(read(path)["agent"]["policy"] for path in saved)


def test_environments_that_cannot_be_restored_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        stop_after(2, signal.SIGINT, patch)
        assert main("--env=CartPole-v1", "--steps=1000", "--n-envs=4", *SMALL, "--folder", tmp_path / "r") == 130
    with caplog.at_level(logging.WARNING):
        assert main("--resume", tmp_path / "r") == 0
    assert "these environments cannot be restored: they begin new episodes" in caplog.messages

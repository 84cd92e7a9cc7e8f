"""A job that is asked to stop says so at once."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, run
from typing import Any

import pytest
from short_runs import Runs
from stable_baselines3 import A2C
from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.agents.checkpoint import Checkpoints
from geonpg.scripts import cli, train
from geonpg.scripts.common.parser import refuse
from geonpg.scripts.common.stopping import AFTER_UPDATE, as_process, listening
from geonpg.scripts.runs.keeper import Keeper

ROOT = Path(__file__).resolve().parents[3]

SMALL = ("n_steps=16", "hidden=8", "critic_hidden=8", "eval_every=1000", "eval_episodes=2", "env_threads=1")
TINY = ["--env", "InvertedPendulum-v4", "--n-envs", "4", "--steps", "256", *(f"--set={key}" for key in SMALL)]


def test_C1_the_first_signal_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It comes in the middle of a rollout, and the answer is there before the rollout goes on."""
    said: list[str] = []

    def interrupted(keeper: Keeper) -> bool:
        if not said:
            capfd.readouterr()
            signal.raise_signal(signal.SIGINT)
            said.append(capfd.readouterr().err)
        return True

    monkeypatch.setattr(Keeper, "_on_step", interrupted)
    assert train.main([*TINY, "--folder", str(tmp_path / "run")]) == 130
    assert said == [f"\n{AFTER_UPDATE}\n"]
    assert AFTER_UPDATE.startswith("stopping after this update")
    assert [path.name for path in Checkpoints(tmp_path / "run" / "checkpoints").paths()] == ["step_000000000064.ckpt"]


def test_C1_the_answer_comes_once_and_where_nobody_listens_not_at_all(capfd: pytest.CaptureFixture[str]) -> None:
    with listening("one moment") as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals()
        signals.receive(signal.SIGINT, None)
        assert signals.received == signal.SIGINT
    with listening() as silent:
        signal.raise_signal(signal.SIGTERM)
        assert silent()
    assert capfd.readouterr().err == "\none moment\n"


SLOW = """
import time
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Slow(CartPoleEnv):
    def step(self, action):
        print("at work", flush=True)
        time.sleep(60)

gymnasium.register("Slow-v0", Slow, max_episode_steps=20)
"""


def interrupted(command: Sequence[str], sign: str, **options: Any) -> tuple[int, list[str]]:
    """Send Ctrl-C's signal to a command when it prints this; its exit code, and what it prints itself."""
    # a child of a process that ignores it, as jobs in the background do, would ignore it too
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    with Popen([sys.executable, "-u", *command], stdout=PIPE, stderr=STDOUT, text=True, **options) as process:
        signal.signal(signal.SIGINT, ours)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if sign in line:
                process.send_signal(signal.SIGINT)
                sign = "\n\n"
        return process.wait(), [line for line in lines if not line.startswith("import time:")]


IMPORTS = {  # what has just been imported when Ctrl-C comes, and by what
    "argparse": ["-m", "geonpg", "configs"],
    "numpy": ["-m", "geonpg.scripts.evaluate", "nowhere"],
    "torch.nn.modules.linear": ["scripts/train.py", "--env", "CartPole-v1"],
    "gymnasium": ["-m", "geonpg.scripts.jobs.worker", "train", "--env", "CartPole-v1"],
}


@pytest.mark.parametrize("module", IMPORTS)
def test_B2_ctrl_c_while_modules_are_imported_is_quiet(module: str) -> None:
    code, printed = interrupted(["-X", "importtime", *IMPORTS[module]], f" {module}\n", cwd=ROOT, stdin=PIPE)
    assert (code, printed) == (130, [])


def test_B2_ctrl_c_at_work_is_quiet(tmp_path: Path, zipped: Callable[[BaseAlgorithm], Path]) -> None:
    (tmp_path / "slow_world.py").write_text(SLOW)
    path = zipped(A2C("MlpPolicy", "CartPole-v1", device="cpu"))
    command = ["-m", "geonpg", "evaluate", str(path), "--env", "slow_world:Slow-v0", "--episodes", "2"]
    code, printed = interrupted(command, "at work", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (code, printed) == (130, ["at work\n"])


@pytest.fixture
def _handlers_restored() -> Iterator[None]:
    """Run a test that calls `as_process` here, which has a process to itself elsewhere."""
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    yield
    signal.signal(signal.SIGINT, before[0])
    sys.unraisablehook = before[1]


@pytest.mark.usefixtures("_handlers_restored")
def test_B2_an_error_that_is_not_of_ctrl_c_is_seen() -> None:
    with pytest.raises(ZeroDivisionError):
        as_process(lambda: 1 // 0)
    assert as_process(lambda: 3) == 3


BUFFERED = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}


def unread(*command: str, errors_too: bool = False) -> tuple[int, str]:
    """Run a command whose output nobody reads, as if `head` had left; its exit code and, if read, its errors."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        errors = STDOUT if errors_too else PIPE
        result = run([sys.executable, *command], stdout=writer, stderr=errors, text=True, env=BUFFERED, cwd=ROOT)
    finally:
        os.close(writer)
    return result.returncode, result.stderr or ""


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_that_nobody_reads_ends_quietly(name: str) -> None:
    assert unread("-m", "geonpg", name, "--help") == (141, "")


LEAVING = {
    "at the end": ["-m", "geonpg", "configs"],
    "amid a page": ["-u", "-m", "geonpg", "configs", "--keys"],
    "as a file": ["scripts/configs.py", "--keys"],
}


@pytest.mark.parametrize("when", LEAVING)
def test_a_command_whose_reader_leaves_ends_quietly(when: str) -> None:
    assert unread(*LEAVING[when]) == (141, "")


def test_a_reader_that_leaves_is_no_error_of_the_disk(runs: Runs, tmp_path: Path) -> None:
    """For which this command has a sentence of its own."""
    folder, page = str(runs("cartpole").parent), str(tmp_path / "page")
    assert unread("-u", "-m", "geonpg", "report", folder, "--out", page) == (141, "")


def test_a_training_whose_bar_nobody_sees_ends_and_can_go_on(tmp_path: Path) -> None:
    command = [*TINY, "--folder", str(tmp_path / "run")]
    assert unread("-m", "geonpg", "train", *command, errors_too=True) == (141, "")
    assert train.main(["--resume", str(tmp_path / "run")]) == 0


def redirected(command: str, where: str) -> tuple[int, str]:
    """Run a command with its output sent elsewhere by the shell; its exit code and its errors."""
    result = run(f"{sys.executable} -m geonpg {command} {where}", shell=True, stderr=PIPE, text=True, env=BUFFERED)
    return result.returncode, result.stderr


def test_an_output_that_is_closed_is_no_error() -> None:
    assert redirected("configs", ">&-") == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("command", ["configs", "configs --keys"])
def test_an_output_that_is_full_is_one_sentence(command: str) -> None:
    """Whether it fits Python's own buffer or not."""
    said = "geonpg: cannot write to standard output: No space left on device\n"
    assert redirected(command, "> /dev/full") == (2, said)


def break_a_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return os.write(writer, b"lost")
    finally:
        os.close(writer)


@pytest.mark.usefixtures("_handlers_restored")
def test_a_pipe_that_breaks_elsewhere_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Which is seen, or refused with its reason where the command does so."""

    def refusing() -> int:
        try:
            return break_a_pipe()
        except OSError as error:
            return refuse("geonpg", error)

    with pytest.raises(BrokenPipeError):
        as_process(break_a_pipe)
    assert as_process(refusing) == 2
    assert capsys.readouterr().err == "geonpg: [Errno 32] Broken pipe\n"

"""A job that is asked to stop says so at once."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import Any

import pytest
from stable_baselines3 import A2C
from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.agents.checkpoint import Checkpoints
from geonpg.scripts import train
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


def test_B2_an_error_that_is_not_of_ctrl_c_is_seen() -> None:
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    try:
        with pytest.raises(ZeroDivisionError):
            as_process(lambda: 1 // 0)
        assert as_process(lambda: 3) == 3
    finally:
        signal.signal(signal.SIGINT, before[0])
        sys.unraisablehook = before[1]

"""A job that is asked to stop says so at once."""

import signal
from pathlib import Path

import pytest

from geonpg.agents.checkpoint import Checkpoints
from geonpg.scripts import train
from geonpg.scripts.keeper import Keeper
from geonpg.scripts.stopping import AFTER_UPDATE, listening

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

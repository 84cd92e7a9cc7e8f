"""Trained policies that several tests look at."""

from collections.abc import Callable
from pathlib import Path

import pytest
from short_runs import TASKS, Runs
from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.scripts import cli


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Short runs, each trained once, with seed 3."""
    base = tmp_path_factory.mktemp("runs")

    def run(name: str) -> Path:
        folder, (env, *settings) = base / name, TASKS[name]
        if not folder.exists():
            chosen = [part for setting in (*settings, "eval_every=1000") for part in ("--set", setting)]
            command = ["train", "--env", env, "--steps", "3000", "--seed", "3", "--folder", str(folder), *chosen]
            assert cli.main(command) == 0
        return folder

    return run


@pytest.fixture
def zipped(tmp_path: Path) -> Callable[[BaseAlgorithm], Path]:
    def save(agent: BaseAlgorithm) -> Path:
        agent.save(tmp_path / "agent.zip")
        return tmp_path / "agent.zip"

    return save

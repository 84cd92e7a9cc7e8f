"""One process at a time in a folder, whatever command it is of."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from geonpg.scripts import branch, deepnets, solve, tune
from geonpg.scripts.branches import branching
from geonpg.scripts.common.locks import AtWork, alone, locked
from geonpg.scripts.compare import main as compare
from geonpg.scripts.jobs import comparing, queue_ray, solving
from geonpg.scripts.jobs.job import our_job
from geonpg.scripts.jobs.queue_ray import ClusterItem, RayQueue
from geonpg.scripts.jobs.solving import Goal
from geonpg.scripts.runs import baseline as baselines
from geonpg.scripts.runs.facts import create

HOLDER = """
import sys, time
from pathlib import Path
from geonpg.scripts.common.locks import locked
with locked(Path(sys.argv[1])):
    print("here", flush=True)
    time.sleep(60)
"""


def test_A3_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "here\n"
        with pytest.raises(AtWork, match=f"another process is at work in {tmp_path}: "), locked(tmp_path):
            pass
        holder.kill()
    with locked(tmp_path):
        assert not list(tmp_path.iterdir())  # it leaves no file


def test_A3_a_folder_is_held_from_its_beginning_to_the_end(tmp_path: Path) -> None:
    """One that is not there yet, too."""
    folder = tmp_path / "new"
    for _ in range(2):
        with alone(folder, lambda: folder.mkdir(exist_ok=True)), pytest.raises(AtWork), locked(folder):
            pass
    with locked(folder):
        pass


def test_A3_of_two_that_begin_in_one_folder_the_second_is_told(tmp_path: Path) -> None:
    """It found no folder, and then there is one."""
    create(tmp_path / "run", "steps = 1\n", {"seed": 0})
    with pytest.raises(AtWork, match="another process is at work in "):
        create(tmp_path / "run", "steps = 2\n", {"seed": 1})
    assert (tmp_path / "run" / "config.toml").read_text() == "steps = 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


COMMANDS = {
    "compare": (compare, "--envs Hopper-v4 --methods geo --seeds 0 --results"),
    "branch": (branch.main, "--envs Reacher-v4 --results"),
    "tune": (tune.main, "--env InvertedPendulum-v4 --results"),
    "deepnets": (deepnets.main, "--task curves --cases 40 --test-cases 10 --out"),
    "baselines": (baselines.main, "--resume"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_A3_every_command_leaves_a_folder_to_the_process_at_work_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comparing, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(branching, "LOCK_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    main, arguments = COMMANDS[name]
    with locked(folder):
        try:
            code = main([*arguments.split(), str(folder)])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
    assert code == 2
    assert f"another process is at work in {folder}: " in capsys.readouterr().err
    assert not list(folder.iterdir())


def test_A3_solve_leaves_a_run_to_the_process_at_work_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(solving, "GOALS", (Goal("InvertedPendulum-v4", 3.0, 100),))
    folder = tmp_path / "InvertedPendulum-v4_default_geo_0"
    folder.mkdir()
    with locked(folder), pytest.raises(SystemExit):
        solve.main(["--runs", str(tmp_path)])
    assert f"another process is at work in {folder}: " in capsys.readouterr().err


class OneSlot:
    """As much of Ray as a queue needs that starts nothing."""

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def remote(self, **options: object) -> Any:
        return MagicMock()


def test_A3_a_cluster_leaves_a_run_to_the_process_at_work_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_ray, "connected", lambda address: OneSlot())
    job = our_job("Reacher-v4", "default", None, 0, {"steps": 10})
    queue = RayQueue([ClusterItem(job, tmp_path, lambda: None)], "", 1.0)
    with locked(tmp_path):
        queue.advance()
    assert "another process is at work in " in queue.failed[job.name]
    assert not queue.is_busy

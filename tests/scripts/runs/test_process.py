"""One agent, trained by several processes: `torchrun --nproc-per-node 2 scripts/train.py ...`."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_processes
import torch

from geonpg.agents.checkpoint import CheckpointError
from geonpg.agents.stepping import Stepper
from geonpg.configs import load
from geonpg.kfac.ranks import ALONE, Ranks
from geonpg.scripts import train
from geonpg.scripts.runs import training
from geonpg.scripts.runs.folder import CURVE
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.run import Run

ROOT = Path(__file__).resolve().parents[3]
SMALL = ["--env", "Reacher-v4", "--set", "n_envs=4", "--set", "n_steps=32", "--set", "eval_episodes=2"]


def torchrun(*arguments: str | Path) -> "subprocess.Popen[str]":
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launcher, str(ROOT / "scripts/train.py"), *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two ranks have found."""
    folder = tmp_path_factory.mktemp("ranks")
    return rank_processes.run(rank_processes.everything, 2, folder, folder / "runs")


def test_fifty_updates_leave_all_ranks_equal_to_the_last_bit(pair: list[dict[str, Any]]) -> None:
    first, second = (each["late"] for each in pair)
    assert torch.equal(first["parameters"], second["parameters"])
    assert str(first["moments"]) == str(second["moments"])
    assert first["episodes"] == second["episodes"]
    assert len(first["episodes"]) > 10
    assert (first["steps"], first["environments"]) == (50 * 4 * 16, 2)


def test_two_ranks_train_as_one_process_does(pair: list[dict[str, Any]]) -> None:
    """Up to rounding, which is float32's and grows: two updates.

    The critic's conjugate gradients make 2e-5 of a last bit: of one that is changed in its first parameters, too.
    """
    (alone,), shared = rank_processes.trained(ALONE, 2), pair[0]["early"]
    assert float((alone["actor"] - shared["actor"]).abs().max()) < 1e-6
    assert float((alone["parameters"] - shared["parameters"]).abs().max()) < 1e-4
    for mine, theirs in zip(alone["moments"], shared["moments"], strict=True):
        assert mine["count"] == theirs["count"]
        assert np.allclose(mine["mean"], theirs["mean"], atol=1e-5)
    assert alone["steps"] == shared["steps"]


def test_two_ranks_go_on_from_a_checkpoint_bit_for_bit(pair: list[dict[str, Any]]) -> None:
    first, second = pair
    assert torch.equal(first["halted"], second["halted"])
    assert torch.equal(first["whole"], first["halted"])


def test_checkpoints_of_an_earlier_version_are_read_if_one_process_made_them(tmp_path: Path) -> None:
    plan = OurPlan("Reacher-v4", 0, load("default", "Reacher-v4", {"n_envs": 2, "n_steps": 8}))
    run = Run(plan, tmp_path, ALONE)
    Stepper(run.agent, 0)
    run.save()
    found = run.checkpoints.latest()
    assert found is not None
    path, state = found
    (own,) = state.pop("ranks")
    state["envs"], state["agent"] = [own.pop("env")], {**state["agent"], **own}
    run.restore(path, state)
    assert run.exact
    run.ranks = Ranks()
    run.ranks.size = 2
    with pytest.raises(CheckpointError, match="was made by 1 processes: go on with as many"):
        run.restore(path, state)
    with pytest.raises(CheckpointError, match="is of an earlier version, which did not keep what each process saw"):
        run.restore(path, {**state, "envs": 2 * state["envs"]})


def test_torchrun_leaves_one_run_folder_and_the_curve_of_one_process(tmp_path: Path) -> None:
    process = torchrun(*SMALL, "--steps", "1280", "--folder", tmp_path / "two")
    printed, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert printed.count("deterministic episodes") == 1  # one speaks for all
    assert train.main([*SMALL, "--steps", "1280", "--folder", str(tmp_path / "one")]) == 0
    (two,), (one,) = CURVE.read(tmp_path / "two"), CURVE.read(tmp_path / "one")
    assert two.steps == one.steps == 1280
    assert two.return_ == pytest.approx(one.return_, rel=1e-3)
    assert two.entropy == pytest.approx(one.entropy, rel=1e-3)


def latest(folder: Path) -> int:
    """The steps of the last checkpoint; 0 before there is one."""
    return max((int(path.stem.removeprefix("step_")) for path in folder.glob("checkpoints/step_*.ckpt")), default=0)


def wait_until_past(folder: Path, steps: int) -> None:
    patience = time.monotonic() + 200
    while latest(folder) <= steps:
        assert time.monotonic() < patience
        time.sleep(0.2)


def workers_of(process: "subprocess.Popen[str]") -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


def test_a_rank_that_dies_ends_the_run_and_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = torchrun(*SMALL, "--steps", "100000000", "--folder", folder)
    wait_until_past(folder, 0)
    os.kill(workers_of(process)[-1], signal.SIGKILL)
    _, said = process.communicate(timeout=200)
    assert process.returncode != 0
    go_on = f"go on with: torchrun --nproc-per-node 2 scripts/train.py --resume {folder}"
    assert "lost one of its 2 processes" in said
    assert go_on in said
    assert train.main(["--resume", str(folder)]) == 2  # one process has not the environments of two
    before = latest(folder)
    process = torchrun("--resume", folder)
    wait_until_past(folder, before)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=200)
    assert go_on in printed


@pytest.mark.parametrize("rank", [0, 1])
def test_environments_must_be_shared_out_evenly(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All processes find that out, and the first one says so."""
    ranks = Ranks()
    ranks.rank, ranks.size = rank, 2
    monkeypatch.setattr(training, "joined", lambda: nullcontext(ranks))
    monkeypatch.setenv("RANK", str(rank))
    assert train.main(["--env", "Reacher-v4", "--n-envs", "3", "--folder", str(tmp_path / "run")]) == 2
    said = "geonpg train: n_envs must be a multiple of the 2 processes, not 3\n"
    assert capsys.readouterr().err == (said if rank == 0 else "")
    assert not (tmp_path / "run").exists()

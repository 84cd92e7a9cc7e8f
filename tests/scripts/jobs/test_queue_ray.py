"""`geonpg compare --cluster`: the same bytes as the local queue, also when workers are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from commands import refused

from geonpg.scripts import compare
from geonpg.scripts.jobs import queue_ray as cluster
from geonpg.scripts.jobs.job import our_job
from geonpg.scripts.jobs.queue_ray import ClusterItem, Stamp, changed, take_in
from geonpg.scripts.runs.folder import is_done

pytest.importorskip("ray")

STUDY = """
[[group]]
methods = ["geo", "ng"]
label = "tiny"
set = {{n_envs = 4, n_steps = 32, hidden = [8], critic_hidden = [8]}}
envs = ["InvertedPendulum-v4"]
seeds = [1]
steps = {steps}
eval_every = {steps}
eval_episodes = 2
"""
EXACT = ("curve.csv", "evaluations.csv", "done.json")


def written(folder: Path, steps: int) -> Path:
    path = folder / "study.toml"
    path.write_text(STUDY.format(steps=steps))
    return path


def exact(results: Path) -> dict[str, bytes]:
    files = [path for path in sorted(results.rglob("*")) if path.name in EXACT]
    return {path.relative_to(results).as_posix(): path.read_bytes() for path in files}


def workers(driver: int) -> list[int]:
    """The processes that train for this one, among all of Ray's on this machine."""
    found = subprocess.run(["pgrep", "-f", "^ray::work"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split() if driver in ancestors(int(pid))]


def ancestors(pid: int) -> list[int]:
    """The parent of a process, and so on; those that end meanwhile have none."""
    with suppress(OSError):
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return [parent, *ancestors(parent)] if parent else []
    return []


def test_a_killed_worker_costs_nothing_and_the_curves_are_those_of_the_local_queue(tmp_path: Path) -> None:
    study = written(tmp_path, 12_800)
    local, shared = tmp_path / "local", tmp_path / "shared"
    command = [sys.executable, "-m", "geonpg.scripts.compare", str(study), "--results", str(shared), "--cluster"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        patience = time.monotonic() + 200
        while not list(shared.rglob("curve.csv")) and process.poll() is None and time.monotonic() < patience:
            time.sleep(0.05)
        busy = workers(process.pid)
        assert busy
        os.kill(busy[0], signal.SIGKILL)
        out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert out.endswith(f"2 of 2 runs are done in {shared}\n")  # after what Ray says of the worker
    assert compare.main([str(study), "--results", str(local), "--jobs", "2"]) == 0
    assert len(exact(local)) == 2 * len(EXACT)
    assert exact(shared) == exact(local)
    assert {path.name for path in shared.rglob("*.ckpt")} == set()  # compact, as ever


def test_files_are_handed_over_as_they_change(tmp_path: Path) -> None:
    there, here, known = tmp_path / "there", tmp_path / "here", dict[str, Stamp]()
    (there / "checkpoints").mkdir(parents=True)
    (there / "curve.csv").write_text("1")
    (there / "checkpoints" / "a.ckpt").write_bytes(b"\x00a")
    (there / ".hidden.tmp").write_text("half")
    take_in(here, changed(there, known))
    assert sorted(path.name for path in here.rglob("*") if path.is_file()) == ["a.ckpt", "curve.csv"]
    assert changed(there, known) == {}
    (there / "curve.csv").write_text("1 2")
    (there / "checkpoints" / "a.ckpt").unlink()
    (there / "checkpoints" / "b.ckpt").write_bytes(b"b")
    new = changed(there, known)
    assert new == {"checkpoints/b.ckpt": b"b", "curve.csv": b"1 2", "checkpoints/a.ckpt": None}
    take_in(here, new)
    assert sorted(path.name for path in here.rglob("*") if path.is_file()) == ["b.ckpt", "curve.csv"]


def test_a_job_that_fails_says_why(tmp_path: Path) -> None:
    stream = cluster.work(["train", "--env", "Hopper-v4", "--set", "gamma=2", "--folder"], {}, {})
    with pytest.raises(RuntimeError, match="gamma must be a finite number in"):
        list(stream)
    assert not is_done(tmp_path)


def test_a_preset_file_travels_with_its_job(tmp_path: Path) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text('description = "mine"\nn_envs = 4\nn_steps = 32\nhidden = [8]\ncritic_hidden = [8]\n')
    job = our_job("InvertedPendulum-v4", str(preset), None, 0, {"method": "ng", "steps": 128})
    item = ClusterItem(job, tmp_path / "run", lambda: None)
    order, presets = item.order(), item.presets()
    preset.unlink()  # as it is on another machine
    for files in cluster.work(order, {}, presets):
        take_in(item.folder, files)
    assert "final.ckpt" in {path.name for path in item.folder.iterdir()}
    assert Path(json.loads((item.folder / "run.json").read_text())["preset"]).stem == "mine"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--cluster", "10.255.255.1:1"], "no Ray cluster at '10.255.255.1:1'"),
        (["--cluster", "--cpus", "0"], "--cpus must be above 0"),
        (["--cpus", "2"], "--cpus goes with --cluster"),
        (["--cluster", "--jobs", "2"], "--jobs is for this machine"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    study = written(tmp_path, 128)
    assert words in refused(capsys, compare.main, study, "--results", tmp_path / "results", *flags)

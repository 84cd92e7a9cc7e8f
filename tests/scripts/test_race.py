"""`geonpg race` from the outside: real processes that race, one at a time, are stopped, and go on."""

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from commands import exit_code, refused
from tiny_races import write_entry

from geonpg.cores import usable_cores
from geonpg.scripts import race
from geonpg.scripts.common.locks import locked
from geonpg.scripts.races import contestants, racing
from geonpg.scripts.races.contestants import config_of
from geonpg.scripts.races.course import Entry
from geonpg.scripts.races.entry import main as race_entry
from geonpg.scripts.races.rows import is_done, read_facts, read_rows, write_facts

main = partial(exit_code, race.main)
FLAGS = ("--envs", "InvertedPendulum-v4", "--minutes", "0.02")

# Writes down who steps it, and when.
WATCHED = """
import os, time
import gymnasium
from gymnasium import spaces

class Watched(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))
    def __init__(self):
        self.log = open(os.environ["WATCHED_LOG"], "a", buffering=1)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def step(self, action):
        self.log.write(f"{os.getpid()} {time.monotonic()}\\n")
        return self.observation_space.sample(), float(action[0]), False, False, {}

gymnasium.register("Watched-v0", Watched, max_episode_steps=20)
"""


@pytest.fixture(autouse=True)
def _own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock of this machine is another one in every test."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(racing.tempfile, "tempdir", None)


def test_a_race_is_run_once_and_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "race"
    command = (*FLAGS, "--contestants", "geonpg,ppo", "--results", results)
    assert main(*command) == 0
    out, err = capsys.readouterr()
    assert "A race of 0.02 minutes" in out
    assert out.endswith(f"2 of 2 entries are done in {results}\n")
    assert "2 of 2 done" in err
    for name in ("geonpg", "ppo"):
        folder = results / "InvertedPendulum-v4" / name / "0.02min/seed-0"
        (row,) = read_rows(folder)
        assert (row.minute, row.episodes) == (0.02, 20)
        assert 1.2 <= row.seconds < 20
        assert row.steps > 0
        assert 0 < row.mean <= 1000
        assert read_facts(folder)["torch_threads"] >= 1
        assert sys.platform != "linux" or 0 <= read_facts(folder)["others"] < usable_cores()
    files = {path: path.stat().st_mtime_ns for path in results.rglob("*.csv")}
    assert main(*command) == 0
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*.csv")} == files, "never repeated"
    assert {"tables.md", "race.svg", "race.png"} <= {path.name for path in results.iterdir()}


@pytest.mark.parametrize("load", [0.2, 3.0])
def test_a_busy_machine_is_told_of(load: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing.os, "getloadavg", lambda: (load, 0.0, 0.0))
    entry = Entry("Hopper-v4", "ppo", 0, 5.0)
    for returns, is_told in (({1.0: 3.0}, load > 1), ({5.0: 3.0}, False)):  # one that has not ended, and one that has
        write_entry(tmp_path, entry, returns)
        with redirect_stderr(StringIO()) as said:
            racing.warn_of_load(racing.Board([entry], tmp_path, 1))
        assert said.getvalue() == ("the load of this machine is 3.0: a race wants it to itself\n" if is_told else "")


def test_entries_never_overlap_on_a_task_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched_world.py").write_text(WATCHED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("WATCHED_LOG", str(tmp_path / "log"))
    monkeypatch.syspath_prepend(tmp_path)
    flags = ("--envs", "watched_world:Watched-v0", "--minutes", "0.01", "--seeds", "0-1")
    assert main(*flags, "--contestants", "geonpg", "--results", tmp_path / "race") == 0
    seen: dict[int, list[float]] = defaultdict(list)
    for line in (tmp_path / "log").read_text().splitlines():
        process, moment = line.split()
        seen[int(process)].append(float(moment))
    assert len(seen) == 2
    spans = sorted((min(moments), max(moments)) for moments in seen.values())
    assert all(before < after for (_, before), (after, _) in pairwise(spans))


def test_what_was_left_out_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_entry(tmp_path, Entry("InvertedPendulum-v4", "trpo", 0, 0.02), {0.02: 1.0}, "another, 64 cores")
    assert main(*FLAGS, "--contestants", "ppo", "--results", tmp_path) == 1
    assert capsys.readouterr().out.endswith(f"0 of 1 entries are done in {tmp_path}, 1 left out\n")


def test_what_could_not_be_told_of_is_refused_before_anybody_races(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_entry(tmp_path, Entry("Hopper-v4", "ars", 0, 5.0), {5.0: 3.0})
    said = refused(capsys, race.main, *FLAGS, "--contestants", "ppo", "--results", tmp_path)
    assert "unknown contestant 'ars'" in said
    assert not (tmp_path / "InvertedPendulum-v4").exists()


def test_a_race_whose_report_fails_still_says_how_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    write_entry(tmp_path, Entry("InvertedPendulum-v4", "ppo", 0, 0.02), {0.02: 3.0})
    facts = read_facts(tmp_path / "InvertedPendulum-v4/ppo/0.02min/seed-0")
    write_facts(
        tmp_path / "InvertedPendulum-v4/ppo/0.02min/seed-0",
        {**facts, "config": config_of("ppo", "InvertedPendulum-v4")},
    )
    monkeypatch.setattr(racing, "write_tables", full)
    assert main(*FLAGS, "--contestants", "ppo", "--results", tmp_path) == 2
    out, err = capsys.readouterr()
    assert "the disk is full" in err
    assert out == f"1 of 1 entries are done in {tmp_path}\n"


def test_an_entry_whose_process_crashed_after_its_end_is_not_raced_again(tmp_path: Path) -> None:
    folder = write_entry(tmp_path, Entry("InvertedPendulum-v4", "ppo", 0, 5.0), {5.0: 1.0})
    before = {path: path.read_bytes() for path in folder.iterdir()}
    arguments = ["--env=InvertedPendulum-v4", "--contestant=ppo", "--seed=0", "--minutes=5", f"--folder={folder}"]
    assert race_entry(arguments) == 0
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_another_race_waits_for_nobody_and_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(racing, "LOCK_SECONDS", 0.0)
    with racing.this_machine():
        said = refused(capsys, race.main, *FLAGS, "--contestants", "geonpg", "--results", tmp_path / "race")
    assert "another race is running on this machine" in said
    with racing.this_machine() as lock, locked(tmp_path):
        assert lock is not None


def test_stopped_it_begins_the_entry_anew(tmp_path: Path) -> None:
    results = tmp_path / "race"
    command = [sys.executable, "-m", "geonpg.scripts.race", "--envs=InvertedPendulum-v4", "--contestants=geonpg"]
    command += ["--minutes=5", f"--results={results}"]
    folder = results / "InvertedPendulum-v4/geonpg/5min/seed-0"
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        while not (folder / "rows.csv").exists() and process.poll() is None:
            time.sleep(0.02)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does
        out, err = process.communicate()
    assert time.monotonic() - began < 60
    assert process.returncode == 128 + signal.SIGINT, err
    stopped = "stopped: 0 of 1 entries are done"
    assert stopped in out
    assert "begins anew" in out
    assert out.endswith(f"go on with: geonpg race {' '.join(command[3:])}\n")
    assert read_rows(folder)
    assert not is_done(folder)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "name a race file, or environments by --envs"),
        (("--envs", "Hopper-v4", "--minutes", "0"), "minutes must be a number above 0"),
        (("--envs", "Hopper-v4", "--minutes", "five"), "invalid float value"),
        (("--envs", "Hopper-v4", "--contestants", "acktr"), "unknown contestant 'acktr'"),
        (("--envs", "Hopper-v4", "--seeds", "x"), "seeds are given as 0-4"),
        (("--envs", "CartPole-v1", "--contestants", "sac"), "sac cannot race"),
        (("nowhere.toml",), "cannot read race nowhere.toml"),
        (("nowhere.toml", "--minutes", "3"), "it takes no --minutes beside it"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    flags: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, race.main, *flags, "--results", tmp_path / "race")
    assert not (tmp_path / "race").exists()


def test_a_race_file_may_not_import_what_the_user_has_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.toml"
    path.write_text('[[group]]\nenvs = ["mine:Own-v0"]\nseeds = [0]\nminutes = 1\n')
    assert "name it by --envs mine:Own-v0" in refused(capsys, race.main, path, "--results", tmp_path / "race")


def test_who_is_not_installed_is_refused_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contestants, "is_there", lambda project: project != "sbx-rl")
    said = refused(capsys, race.main, *FLAGS, "--contestants", "sbx-sac", "--results", tmp_path / "race")
    assert 'it needs sbx-rl (pip install "geonpg[race]")' in said


def test_an_entry_that_fails_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = WATCHED.replace('self.log.write(f"{os.getpid()} {time.monotonic()}\\n")', "raise OSError('it burns')")
    (tmp_path / "broken_world.py").write_text(broken.replace("Watched-v0", "Broken-v0"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("WATCHED_LOG", str(tmp_path / "log"))
    monkeypatch.syspath_prepend(tmp_path)
    flags = ("--envs", "broken_world:Broken-v0", "--minutes", "0.01", "--contestants", "geonpg")
    assert main(*flags, "--results", tmp_path / "race") == 1
    assert "raised OSError: it burns" in capsys.readouterr().err

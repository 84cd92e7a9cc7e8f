"""The queue on this machine, with commands that take no time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from geonpg.scripts.common.locks import locked
from geonpg.scripts.jobs.queue import LOCK_SECONDS
from geonpg.scripts.jobs.queue_local import LocalItem, LocalQueue

OK, FAILS = "", "import sys; print('first', file=sys.stderr); sys.exit('the last word')"
# Ends as a run of ours does when it is asked to stop, once its file says that it is there.
WAITS = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[1] + '.saved').touch(), sys.exit(143)))
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""


class Desk:
    """Makes items of Python programs, and keeps what has been started and done."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.done: list[str] = []

    def item(self, name: str, *programs: str, arguments: Iterable[str] = ()) -> LocalItem:
        """Each start runs the next of the programs; the last one again and again."""
        left = list(programs)

        def command() -> list[str]:
            self.started.append(name)
            return [sys.executable, "-I", "-S", "-c", left.pop(0) if len(left) > 1 else left[0], *arguments]

        return LocalItem(name, command, lambda: self.done.append(name))


def finish(queue: LocalQueue) -> int:
    """To the end; how many ran at a time, at most."""
    most = 0
    while queue.is_busy:
        queue.advance()
        most = max(most, len(queue.running))
        time.sleep(0.005)
    return most


def until(condition: Path) -> None:
    patience = time.monotonic() + 30
    while not condition.exists():
        assert time.monotonic() < patience
        time.sleep(0.005)


@pytest.mark.parametrize("slots", [1, 2])
def test_all_run_in_order_so_many_at_a_time(slots: int) -> None:
    desk = Desk()
    queue = LocalQueue([desk.item(str(i), OK) for i in range(4)], slots)
    assert finish(queue) == slots
    assert desk.started == ["0", "1", "2", "3"]
    assert sorted(desk.done) == desk.started
    assert not queue.failed


def test_a_failure_is_tried_again_once_then_reported() -> None:
    desk = Desk()
    killed = "import os, sys; print('a warning', file=sys.stderr, flush=True); os.kill(os.getpid(), 9)"
    items = [
        desk.item("fails", FAILS),
        desk.item("recovers", FAILS, OK),
        desk.item("killed", killed),
        desk.item("silent", "raise SystemExit(3)"),
        desk.item("fine", OK),
    ]
    queue = LocalQueue(items, 1)
    finish(queue)
    assert desk.done == ["recovers", "fine"]
    assert desk.started == [name for name in ("fails", "recovers", "killed", "silent") for _ in range(2)] + ["fine"]
    assert queue.failed == {
        "fails": "the last word",
        "killed": "killed by signal 9, after: a warning",
        "silent": "exit code 3",
    }


def test_one_that_hangs_is_killed_and_the_others_go_on() -> None:
    desk = Desk()
    hangs = replace(desk.item("hangs", "import time; time.sleep(600)"), limit=0.2)
    queue = LocalQueue([hangs, desk.item("fine", OK)], 1)
    finish(queue)
    assert desk.started == ["hangs", "hangs", "fine"]
    assert desk.done == ["fine"]
    assert "nothing was heard of it" in queue.failed["hangs"]


def test_one_that_gives_signs_of_life_does_not_hang(tmp_path: Path) -> None:
    """It takes several times the limit."""
    desk, sign = Desk(), tmp_path / "sign"
    lives = "import pathlib, sys, time\nfor _ in range(30): pathlib.Path(sys.argv[1]).touch(); time.sleep(0.1)"
    item = replace(desk.item("lives", lives, arguments=[str(sign)]), limit=1.5, sign=sign)
    queue = LocalQueue([item, replace(item, name="silent", sign=tmp_path / "nothing")], 2)
    finish(queue)
    assert desk.done == ["lives"]
    assert "nothing was heard of it" in queue.failed["silent"]


def test_one_that_was_stopped_and_saved_has_not_failed() -> None:
    desk = Desk()
    stopped = ["raise SystemExit(143)", "raise SystemExit(130)", "raise SystemExit(143)"]
    queue = LocalQueue([desk.item("stopped", *stopped, OK)], 1)
    finish(queue)
    assert desk.done == ["stopped"]
    assert not queue.failed


def test_stopping_waits_until_children_have_saved(tmp_path: Path) -> None:
    desk = Desk()
    files = [tmp_path / name for name in "ab"]
    queue = LocalQueue([desk.item(f.name, WAITS, arguments=[str(f)]) for f in files], 2)
    queue.work(stop=lambda: all(file.exists() for file in files), look=lambda: None, pause=0.005)
    assert all(Path(f"{file}.saved").exists() for file in files)
    assert not queue.running


HOLDER = """
import sys, time
from pathlib import Path
from geonpg.scripts.common.locks import locked
from geonpg.scripts.jobs.queue import LOCK_SECONDS
from geonpg.scripts.jobs.queue_local import LocalItem, LocalQueue
program = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); os.read(0, 1); time.sleep(1)"
command = [sys.executable, "-I", "-S", "-c", program, sys.argv[2]]
with locked(Path(sys.argv[1]), LOCK_SECONDS) as lock:
    queue = LocalQueue([LocalItem("child", lambda: command, lambda: None)], 1, lock)
    queue.advance()
    time.sleep(60)
"""


def test_a_folder_is_locked_until_the_last_child_of_a_killed_queue_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The child notices the death of its queue by its standard input, and takes a second to end."""
    folder, sign = tmp_path / "results", tmp_path / "child is there"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), str(sign)]) as holder:
        until(sign)
        with pytest.raises(ValueError, match="another process is at work in "), locked(folder, seconds=0.1):
            pass
        assert capsys.readouterr().err == f"waiting for what is still at work in {folder}\n"
        os.kill(holder.pid, signal.SIGKILL)
    killed = time.monotonic()
    with locked(folder, LOCK_SECONDS):
        assert time.monotonic() - killed > 0.5

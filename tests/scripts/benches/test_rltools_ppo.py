"""RLtools as a contestant: its process, what it answers, and what is said where it does not start."""

from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from geonpg.scripts.benches import rltools_ppo
from geonpg.scripts.benches.contest import speeds_by_round
from geonpg.scripts.races import rltools_process

INSTALLED = find_spec("rltools") is not None

# A stand-in for the worker, which needs a compiler and a minute: 100 steps in 2 CPU-seconds per update.
WORKER = """
import json, sys
cpu = 1.0
print(json.dumps({"steps": 0, "cpu": cpu}), flush=True)
for line in sys.stdin:
    updates = json.loads(line).get("train", 0)
    cpu += 2 * updates
    print(json.dumps({"steps": 100 * updates, "cpu": cpu}), flush=True)
"""


def use(worker: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "stand_in.py").write_text(worker)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(rltools_process, "WORKER", "stand_in")


def test_it_trains_and_tells_its_own_cpu_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(WORKER, tmp_path, monkeypatch)
    with ExitStack() as stack:
        found = rltools_ppo.start_all(["A", "B"], stack)
        assert list(found) == ["A", "B"]
        speeds = speeds_by_round(found, 2, "test")
        assert speeds.per_cpu_second == {"A": [50.0, 50.0], "B": [50.0, 50.0]}
        assert all(speed > 0 for rounds in speeds.per_second.values() for speed in rounds)


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        ("""print('{"error": "ModuleNotFoundError: no RLtools"}')""", "ModuleNotFoundError: no RLtools"),
        ("import os; os.abort()", "its process ended without an answer"),
    ],
    ids=["says why", "crashes"],
)
def test_where_it_does_not_start_a_line_says_why(
    worker: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(worker, tmp_path, monkeypatch)
    with ExitStack() as stack:
        assert rltools_ppo.start_all(["A", "B"], stack) == {}
    assert capsys.readouterr().err == f"RLtools is left out: {said} ({rltools_ppo.INSTALL})\n"


@pytest.mark.skipif(INSTALLED, reason="it is installed")
def test_the_worker_says_that_it_is_not_installed(capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        assert rltools_ppo.start_all(["HalfCheetah-v4"], stack) == {}
    assert "ModuleNotFoundError: No module named 'rltools'" in capsys.readouterr().err


@pytest.mark.skipif(not INSTALLED, reason="it is not installed")
def test_it_takes_part_where_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow: its loop is compiled, once for both ids, which have the same sizes."""
    monkeypatch.setattr(rltools_ppo, "UPDATES", 1)
    with ExitStack() as stack:
        found = rltools_ppo.start_all(["HalfCheetah-v4", "Walker2d-v4"], stack)
        assert len(found) == 2
        for contestant in found.values():
            before = contestant.cpu()
            assert contestant.run() == 4096
            assert contestant.cpu() > before

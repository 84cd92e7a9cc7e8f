"""SB3's own test-suite, unmodified, with `A2C` replaced by `ACKTR`: every test that reaches our class.

Downloads the source distribution of the installed SB3, runs its tests and ends in pytest's own summary line. This file
is also the pytest plugin that puts ACKTR in A2C's place, before any test module is imported.
"""

import inspect
import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import stable_baselines3
from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.agents import ACKTR

WHERE = Path("build") / "sb3-suite"

# What fails and why: the README's table says it in full. Any other failure makes the exit code 1.
KNOWN = {
    "test_tensorboard[a2c]": "the log folder's name",
    "test_continuous[ACKTR]": "a learning rate that is no Adam rate here",
    "test_infinite_horizon[True-ACKTR]": "fewer and larger batches by default",
}
failures: set[str] = set()


def download(where: Path) -> Path:
    """The folder of SB3's source distribution."""
    number = version("stable-baselines3")
    folder = where / f"stable_baselines3-{number}"
    if not (folder / "tests").is_dir():
        where.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", str(where), f"stable-baselines3=={number}"], check=True)
        with tarfile.open(f"{folder}.tar.gz") as archive:
            archive.extractall(where, filter="data")
    return folder


def pytest_configure(config: pytest.Config) -> None:
    vars(stable_baselines3)["A2C"] = ACKTR


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if isinstance(item, pytest.Function) and reaches(item)]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failures.add(report.nodeid.split("::")[-1])


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and failures <= KNOWN.keys():
        session.exitstatus = 0


def reaches(item: pytest.Function) -> bool:
    """Is the test parametrised by our class or, if by no algorithm, does it or one of its fixtures name A2C?"""
    parameters = list(flattened(getattr(item, "callspec", None)))
    if ACKTR in parameters or "a2c" in parameters:
        return True
    if any(isinstance(p, type) and issubclass(p, BaseAlgorithm) for p in parameters):
        return False
    fixtures = [d.func for ds in item._fixtureinfo.name2fixturedefs.values() for d in ds]
    ours = [f for f in (item.function, *fixtures) if "tests" in inspect.getfile(f)]
    return any(re.search(r"\bA2C[(.]", inspect.getsource(f)) for f in ours)


def flattened(callspec: Any) -> list[Any]:
    """The values that a test is parametrised by, those in tuples too."""
    found: list[Any] = []
    for value in callspec.params.values() if callspec else ():
        found += list(value) if isinstance(value, tuple | list) else [value]
    return [value for value in found if isinstance(value, type | str)]


def main() -> int:
    folder = download(WHERE)
    command = [sys.executable, "-m", "pytest", "-p", "geonpg.scripts.sb3_suite", "-p", "no:cacheprovider"]
    # one thread each: two workers with two threads on tiny tensors take ten times as long
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*command, "-n", "2", "--tb=line", "tests"], cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())

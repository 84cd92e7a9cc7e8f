"""Run SB3's own tests, unmodified, with `A2C` replaced by `ACKTR`: every test that reaches our class.

Downloads the source distribution of the installed SB3, runs its tests and ends in pytest's own summary line. This file
is also the pytest plugin that puts ACKTR in A2C's place, before any test module is imported.

Three tests fail, because of what A2C has otherwise; every other failure is one of ours:

test                               expects                              here
test_tensorboard[a2c]              logs in the folder `A2C_1`           the folder is named after the class, `ACKTR_1`
test_continuous[ACKTR]             a return of 90 at                    a natural gradient's longest step, 0.3 by
                                   `learning_rate=1e-3`, RMSprop's      default: 51, and 100 at the default
test_infinite_horizon[True-ACKTR]  a value within 1 of 50               `n_steps` is 64 by default, for 16 environments:
                                   after 500 steps                      27, and 49.7 with A2C's 5
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

# What fails, for the reasons above. Any other failure makes the exit code 1.
KNOWN = {"test_tensorboard[a2c]", "test_continuous[ACKTR]", "test_infinite_horizon[True-ACKTR]"}
failures: set[str] = set()


def download(where: Path) -> Path:
    """Download SB3's source distribution once, and return its folder."""
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
    if session.exitstatus == pytest.ExitCode.TESTS_FAILED and failures <= KNOWN:
        session.exitstatus = 0


def reaches(item: pytest.Function) -> bool:
    """Whether a test is parametrised by our class or, if by no algorithm, names A2C or has a fixture that does."""
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
    here = Path(__file__).resolve()
    command = [sys.executable, "-m", "pytest", "-p", here.stem, "-p", "no:cacheprovider"]
    # one thread each: two workers with two threads on tiny tensors take ten times as long
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(here.parent)}
    return subprocess.run([*command, "-n", "2", "--tb=line", "tests"], cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())

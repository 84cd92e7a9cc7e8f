"""A run that is stopped and continued is the run that was not."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from geonpg.scripts.deep.methods import DEEP_METHODS
from geonpg.scripts.deep.runs import DeepRun, first_at_or_below, restore_run, train_run
from geonpg.scripts.deep.tasks import DEEP_TASKS, make_experiment


def rows(path: Path) -> list[dict[str, str]]:
    """Everything but how long it took."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {name: cell for name, cell in row.items() if not name.endswith("seconds")} for row in csv.DictReader(file)
        ]


@pytest.mark.parametrize("name", DEEP_METHODS)
def test_continuing_is_bit_exact(name: str, tmp_path: Path) -> None:
    size = replace(DEEP_TASKS["curves"].sizes["small"], train=40, test=10)

    def continued(folder: Path, *stops: int) -> DeepRun:
        """Trained to each stop in turn, from the file that the last one left."""
        folder.mkdir()
        for stop in stops:
            experiment = make_experiment(DEEP_TASKS["curves"], size, None, 0)
            run = DeepRun(name, DEEP_METHODS[name](experiment, 0))
            restore_run(run, folder, stop)
            assert train_run(run, experiment, stop, folder, lambda run: None)
        return run

    straight, resumed = continued(tmp_path / "straight", 4), continued(tmp_path / "resumed", 2, 3, 4)
    assert rows(tmp_path / "resumed" / f"{name}.csv") == rows(tmp_path / "straight" / f"{name}.csv")
    assert torch.equal(resumed.method.y, straight.method.y)


def test_the_first_update_at_or_below_a_level() -> None:
    errors = [{"update": 1.0, "train_error": 9.0}, {"update": 2.0, "train_error": 5.5}]
    assert first_at_or_below(errors, 9) == 1
    assert first_at_or_below(errors, 6) == 2
    assert math.isnan(first_at_or_below(errors, 5))

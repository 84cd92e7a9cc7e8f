"""Every method learns."""

from dataclasses import replace

import pytest

from geonpg.scripts.deep.methods import DEEP_METHODS
from geonpg.scripts.deep.tasks import DEEP_TASKS, make_experiment


@pytest.mark.parametrize("name", DEEP_METHODS)
def test_every_method_lowers_the_error(name: str) -> None:
    task = DEEP_TASKS["curves"]
    experiment = make_experiment(task, replace(task.sizes["small"], train=100, test=20), None, 0)
    method = DEEP_METHODS[name](experiment, 0)
    start = experiment.problem.evaluate(method.y).error
    for _ in range(3):
        progress = method.update()
    assert progress.train_error < start

"""Numbers in words."""

import numpy as np
import pytest

from geonpg.scripts.reports.words import counted, steps_range, steps_text


def test_one_task_is_one_task() -> None:
    counts = ((1,), (2,), (1, 1), (1, 3))
    assert [counted("task", *each) for each in counts] == ["1 task", "2 tasks", "1 task", "1 to 3 tasks"]


@pytest.mark.parametrize(("steps", "text"), [(1e6, "1.00 M"), (250_000, "0.25 M"), (30_000, "30 k"), (np.inf, "never")])
def test_steps(steps: float, text: str) -> None:
    assert steps_text(steps) == text
    assert steps_range([steps, steps]) == text


def test_a_range_of_steps() -> None:
    assert steps_range([1e6, 3e4, 5e5]) == "30 k to 1.00 M"

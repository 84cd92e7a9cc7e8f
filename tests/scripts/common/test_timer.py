"""What is done every few seconds."""

import pytest

from geonpg.scripts.common import timer
from geonpg.scripts.common.timer import Timer


def test_it_is_due_after_so_many_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(timer.time, "monotonic", lambda: now)
    late, early = Timer(), Timer(due=True)
    assert (late.is_due(5.0), early.is_due(5.0), late.is_due(0.0)) == (False, True, True)
    now = 105.0
    assert late.is_due(5.0)
    late.restart()
    early.restart()
    assert not late.is_due(5.0)
    assert not early.is_due(5.0)

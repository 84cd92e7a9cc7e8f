"""What takes a while is told, once, and what does not is not."""

import logging
import time

import pytest

from geonpg.envs.physics import patience


@pytest.mark.parametrize(("seconds", "lines"), [(0.0, 0), (0.3, 1)])
def test_only_what_takes_long_is_told(
    seconds: float, lines: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.1)
    with caplog.at_level(logging.WARNING, patience.__name__), patience.told():
        time.sleep(seconds)
    time.sleep(0.15)
    assert len(caplog.records) == lines
    assert all(record.message.startswith("compiling the simulations") for record in caplog.records)


def test_an_error_inside_is_not_followed_by_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    with pytest.raises(KeyError), patience.told():
        raise KeyError
    time.sleep(0.1)
    assert not caplog.records

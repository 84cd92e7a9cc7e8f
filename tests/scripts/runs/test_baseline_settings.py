"""Settings of the baselines, from SB3's constructors and from rl-zoo3."""

import sys

import pytest

from geonpg.errors import Refused
from geonpg.scripts.runs import baseline_settings as zoo


@pytest.mark.parametrize("algorithm", zoo.ALGORITHMS)
@pytest.mark.parametrize("task", zoo.TASKS)
def test_every_task_has_tuned_settings(algorithm: str, task: str) -> None:
    """And they are settings: the constructor knows them."""
    config = zoo.settings_of(algorithm, "zoo", f"{task}-v4")
    assert config["normalize"]
    own = {*zoo.defaults_of(algorithm), *zoo.POLICY}
    assert set(config) <= own


def test_without_sb3_contrib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(Refused, match=r"trpo needs sb3-contrib: .* \(pip install sb3-contrib\)"):
        zoo.class_of("trpo")

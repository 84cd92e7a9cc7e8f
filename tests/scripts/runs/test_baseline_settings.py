"""Settings of the baselines, from SB3's constructors and from rl-zoo3."""

import sys
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from geonpg.errors import Refused
from geonpg.scripts.runs import baseline_settings as zoo

# what is said elsewhere, or is no argument of the algorithm's
NOT_OURS = ("policy", "n_timesteps", "policy_kwargs")


SB3 = [name for name in zoo.ALL if not name.startswith("sbx-")]  # which is installed wherever tests are


@pytest.mark.parametrize("algorithm", SB3)
@pytest.mark.parametrize("task", zoo.TASKS)
def test_every_task_has_tuned_settings(algorithm: str, task: str) -> None:
    """And they are settings: the constructor knows them."""
    config = zoo.settings_of(algorithm, "zoo", f"{task}-v4")
    assert config["normalize"] == (algorithm in zoo.ALGORITHMS)
    own = {*zoo.defaults_of(algorithm), *zoo.POLICY}
    assert set(config) <= own


@pytest.mark.parametrize("algorithm", ["ppo", "trpo", "sac", "tqc"])
def test_they_are_the_zoos_own(algorithm: str) -> None:
    """Against the files of rl-zoo3, for every task that they know, under its latest version there."""
    path = Path(str(files("rl_zoo3"))) / f"hyperparams/{algorithm}.yml"
    entries = yaml.safe_load(path.read_text())
    compared = 0
    for task in zoo.TASKS:
        names = [name for name in (f"{task}-v4", f"{task}-v2") if name in entries]
        for name in names[:1]:
            entry = {key: value for key, value in entries[name].items() if key not in NOT_OURS}
            found = zoo.settings_of(algorithm, "zoo", f"{task}-v4")
            assert {key: found.get(key) for key in entry} == entry
            is_wide = "256" in str(entries[name].get("policy_kwargs"))
            assert is_wide == (found.get("hidden") == [256, 256])
            changed = {key for key, value in zoo.defaults_of(algorithm).items() if found[key] != value}
            assert changed <= {*entry, *zoo.POLICY}, "nothing else is changed"
            compared += 1
    assert compared >= 6


def test_what_the_zoo_does_not_know_has_the_defaults() -> None:
    assert zoo.settings_for("HalfCheetah-v5") == "zoo"
    assert zoo.settings_for("mine:Own-v0") == "default"
    assert zoo.tuned("sac", "Reacher-v4") == {}


def test_without_sb3_contrib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(Refused, match=r"trpo needs sb3-contrib: .* \(pip install sb3-contrib\)"):
        zoo.class_of("trpo")

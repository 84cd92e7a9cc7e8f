"""Plans that are read from a run's folder, and what they are compared with."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from geonpg.configs import load
from geonpg.errors import Refused
from geonpg.scripts.runs.baseline_plan import BaselinePlan, config_of
from geonpg.scripts.runs.facts import create
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.plan import Plan
from geonpg.scripts.runs.recorded import difference, plan_of, require_same

PENDULUM = "InvertedPendulum-v4"


def ours(**chosen: object) -> OurPlan:
    return OurPlan(PENDULUM, 3, load("paper", PENDULUM, chosen), "paper")


def theirs(**chosen: object) -> BaselinePlan:
    return BaselinePlan.of_config(PENDULUM, 3, {**config_of("a2c", "default", PENDULUM, {"steps": 500}), **chosen})


def recorded(plan: Plan, folder: Path) -> Path:
    create(folder, plan.config, plan.facts)
    return folder


@pytest.mark.parametrize("make", [ours, theirs])
def test_the_plan_of_a_folder_is_the_one_it_was_begun_with(make: Callable[..., Plan], tmp_path: Path) -> None:
    plan = make(gamma=0.9)
    folder = recorded(plan, tmp_path / "run")
    assert plan_of(folder) == plan
    assert difference(folder, plan) == ""
    assert difference(folder, plan.for_steps(7)) == ""
    assert difference(folder, make(gamma=0.8)) == "gamma (0.9 and 0.8)"
    assert difference(folder, replace(plan, seed=4)) == "seed (3 and 4)"
    require_same(folder, plan, "choose another")
    with pytest.raises(Refused, match=r"holds another run, which differs in seed \(3 and 4\): choose another"):
        require_same(folder, replace(plan, seed=4), "choose another")
    with pytest.raises(Refused, match=r"was begun for .* steps, not 7: say so, or choose another"):
        require_same(folder, plan.for_steps(7), "choose another", steps_advice="say so, or ")


def test_a_baseline_is_not_our_run(tmp_path: Path) -> None:
    assert difference(recorded(ours(), tmp_path / "run"), theirs())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('n_steps = "many"', "n_steps must be like 5, not 'many'"),
        ("eval_every = 2.5", "eval_every must be like 0, not 2.5"),
        ("momentum = 0.5", "knows no setting momentum"),
        ('algorithm = "reinforce"', "unknown algorithm 'reinforce'"),
        ("gamma = 7", "gamma must be a finite number in [0, 1], not 7"),
    ],
)
def test_a_config_that_was_changed_is_refused(line: str, words: str, tmp_path: Path) -> None:
    config = recorded(theirs(), tmp_path / "run") / "config.toml"
    kept = [each for each in config.read_text().splitlines() if not each.startswith(line.split(" = ")[0] + " = ")]
    config.write_text("\n".join([*kept, line, ""]))
    with pytest.raises(Refused, match=re.escape(words)):
        plan_of(tmp_path / "run")

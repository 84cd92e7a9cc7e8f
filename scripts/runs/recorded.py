"""The plan of a run that has begun, read from its folder, and how it differs from another plan."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from geonpg.configs import FIELDS, load_recorded
from geonpg.errors import known, require
from geonpg.scripts.runs import baseline_settings as zoo
from geonpg.scripts.runs.baseline_plan import BUDGET, NEEDED, BaselinePlan
from geonpg.scripts.runs.facts import Facts, facts_of, versions
from geonpg.scripts.runs.folder import CONFIG, config_difference, read_config
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.plan import Plan


def plan_of(folder: Path) -> Plan[Any]:
    """Read the plan of the run in a folder, ours or a baseline's; raise Refused if a setting is unknown."""
    facts, config = facts_of(folder), read_config(folder)
    is_baseline = "algorithm" in config
    legal = baseline_keys(folder, config) if is_baseline else {"description", *FIELDS}
    foreign = [key for key in config if key not in legal]
    made_by = f"{folder} was begun by another version of geonpg ({facts.versions.get('geonpg', 'unknown')})"
    require(not foreign, f"{made_by}: {versions()['geonpg']} knows no setting {', '.join(foreign)}")
    return BaselinePlan.of_config(facts.env, facts.seed, config) if is_baseline else our_plan_of(folder, facts)


def our_plan_of(folder: Path, facts: Facts) -> OurPlan:
    """Read the plan of a run of our own agent."""
    return OurPlan(facts.env, facts.seed, load_recorded(str(folder / CONFIG)), facts.preset, facts.device)


def baseline_keys(folder: Path, config: Mapping[str, Any]) -> set[str]:
    """Return the settings that a baseline's config.toml may hold; raise Refused for a missing or mistyped one."""
    algorithm = known("algorithm", str(config["algorithm"]), zoo.ALGORITHMS)
    usual = {"settings": "default", **zoo.defaults_of(algorithm), **dict.fromkeys(BUDGET, 0)}
    for key, value in usual.items():
        kinds = (int, float) if isinstance(value, float) else type(value)
        found = config.get(key, None if key in NEEDED else value)
        require(isinstance(found, kinds), f"{folder / CONFIG} is damaged: {key} must be like {value!r}, not {found!r}")
    return {"algorithm", *usual, *zoo.POLICY}


def difference(folder: Path, plan: Plan[Any]) -> str:
    """Describe the first difference between the run in a folder and a plan, apart from their steps; empty if none."""
    there = plan_of(folder)
    return config_difference(*({**each.identity, "device": each.facts["device"]} for each in (there, plan)))


def require_same(folder: Path, plan: Plan[Any], advice: str, steps_advice: str = "") -> None:
    """Refuse to resume the run in a folder if it is not the planned one."""
    other, steps, wanted = difference(folder, plan), plan_of(folder).settings.steps, plan.settings.steps
    require(not other, f"{folder} holds another run, which differs in {other}: {advice}")
    require(steps == wanted, f"{folder} was begun for {steps} steps, not {wanted}: {steps_advice}{advice}")

"""What a run is, before it has done anything, and as its folder says it."""

import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from geonpg.configs import FIELDS, Settings, load_recorded, to_toml
from geonpg.errors import Refused, require
from geonpg.scripts.runs.facts import facts_of, versions


@dataclass(frozen=True)
class Plan:
    """What a run is, before it has done anything."""

    env_id: str
    seed: int
    settings: Settings
    preset: str = "default"
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"{self.env_id.replace('/', '-')}_{Path(self.preset).stem}_{self.settings.method}_{self.seed}"

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with; the number of steps may change."""
        return {**asdict(self.settings), "env": self.env_id, "seed": self.seed, "steps": None}


def config_of(plan: Plan) -> str:
    return to_toml(plan.settings, plan.name)


def plan_of(folder: Path) -> Plan:
    """The plan of a run that has begun."""
    facts, path = facts_of(folder), folder / "config.toml"
    try:
        foreign = [
            key for key in tomllib.loads(path.read_text(encoding="utf-8")) if key not in ("description", *FIELDS)
        ]
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"{folder} is no run folder: {error}") from None
    made_by = f"{folder} was begun by another version of geonpg ({facts.versions.get('geonpg', 'unknown')})"
    require(not foreign, f"{made_by}: {versions()['geonpg']} knows no setting {', '.join(foreign)}")
    return Plan(facts.env, facts.seed, load_recorded(str(path)), facts.preset, facts.device)

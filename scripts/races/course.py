"""The entries of a race, from a TOML file or flags: contestants x environments x seeds, one after another.

[[group]]
contestants = ["geonpg", "ppo"]  # without it, everyone who is installed and can
envs = ["HalfCheetah-v4", "Walker2d-v4"]
seeds = [0, 1, 2]
minutes = 5
"""

import sys
from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geonpg.configs.presets import blaming
from geonpg.configs.schema import is_finite
from geonpg.errors import Refused, known, require
from geonpg.scripts.common.artifacts import file_name
from geonpg.scripts.common.pin import first_difference, require_pinned
from geonpg.scripts.jobs.matrix import Group, read_groups, seeds_from, seeds_of, texts
from geonpg.scripts.races.contestants import CONTESTANTS, config_of, missing, unfit
from geonpg.scripts.races.rows import entry_folders, is_done, machine, machines_by_race, read_finished
from geonpg.scripts.runs.building import RAW, make_env
from geonpg.scripts.runs.trust import check_import

KEYS = ("contestants", "envs", "seeds", "minutes")
MOST_MINUTES = 1000.0


@dataclass(frozen=True)
class Entry:
    """One contestant on one task with one seed, for so many minutes."""

    env_id: str
    contestant: str
    seed: int
    minutes: float

    @property
    def race(self) -> tuple[str, float]:
        """What it is compared on: task and minutes."""
        return self.env_id, self.minutes

    @property
    def name(self) -> str:
        """Its folder, relative to the results; no folder of `geonpg compare` ends like it."""
        return f"{file_name(self.env_id)}/{self.contestant}/{self.minutes:g}min/seed-{self.seed}"

    @property
    def arguments(self) -> list[str]:
        """The arguments of its process, without the folder."""
        return [
            f"--env={self.env_id}",
            f"--contestant={self.contestant}",
            f"--seed={self.seed}",
            f"--minutes={self.minutes!r}",
        ]


def groups_of(arguments: Namespace) -> list[Group]:
    """Read the groups of the race's file, or make one from the flags."""
    if arguments.race:
        return read_groups(arguments.race, "race")
    group = {"envs": arguments.envs.split(","), "seeds": seeds_from(arguments.seeds), "minutes": arguments.minutes}
    return [group | ({"contestants": arguments.contestants.split(",")} if arguments.contestants else {})]


def entries_of(groups: Sequence[Group], named: Collection[str]) -> list[Entry]:
    """Make the entries of a race in order, each once; everything that is wrong with it raises Refused here.

    named: environments whose modules may be imported.
    """
    checked = []
    for number, group in enumerate(groups, 1):
        with blaming(f"group {number}"):
            checked.append((check(group), group))
    for env_id in dict.fromkeys(env_id for envs, _ in checked for env_id in envs):
        check_import(env_id, named, "the race", "--envs")
    told: dict[str, None] = {}
    found = dict.fromkeys(entry for envs, group in checked for entry in group_entries(envs, group, told))
    for sentence in told:
        print(sentence, file=sys.stderr)
    require(bool(found), "nobody is left to race")
    return list(found)


def check(group: Group) -> list[str]:
    """Refuse a group whose keys or values are not legal; return its environments."""
    for key in group:
        known("key", key, KEYS)
    minutes = group.get("minutes")
    legal = is_finite(minutes) and 0 < float(minutes or 0) <= MOST_MINUTES
    require(legal, f"minutes must be a number above 0, up to {MOST_MINUTES:g}, not {minutes!r}")
    seeds_of(group)
    for contestant in texts(group, "contestants") if "contestants" in group else ():
        known("contestant", contestant, CONTESTANTS)
    return texts(group, "envs")


def group_entries(envs: Sequence[str], group: Group, told: dict[str, None]) -> Iterator[Entry]:
    """Make the entries of one group, environment by environment, and all seeds of one contestant before the next.

    told: sentences about those who are left out, which are those who were not asked for by name.
    """
    asked = "contestants" in group
    for env_id in envs:
        for contestant, reason in objections(env_id, group.get("contestants", list(CONTESTANTS))).items():
            if reason and asked:
                raise Refused(f"{contestant} cannot race: {reason}")
            if reason:
                told[f"{contestant} is left out: {reason}"] = None
                continue
            for seed in seeds_of(group):
                yield Entry(env_id, contestant, seed, float(group["minutes"]))


def objections(env_id: str, contestants: Sequence[str]) -> dict[str, str]:
    """Say for every contestant why it cannot race on a task; empty where it can."""
    with closing(make_env(RAW, env_id, 1, 0)) as env:
        return {name: missing(name) or told_of(env_id, unfit(name, env)) for name in contestants}


def told_of(env_id: str, reason: str) -> str:
    """Name the task in a reason, if there is one."""
    return f"on {env_id}, {reason}" if reason else ""


def check_recorded(entry: Entry, root: Path) -> None:
    """Refuse a folder that holds another finished entry; one that was interrupted begins anew anyway."""
    folder = root / entry.name
    if finished := read_finished(folder):
        facts, _ = finished
        there: Mapping[str, Any] = {**facts["config"], "env": facts["env"]}  # ids with a slash or a dash share a folder
        asked = {**config_of(entry.contestant, entry.env_id), "env": entry.env_id}
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in asked.items()}
        require_pinned(folder, first_difference(there, plain), "move it away, or choose other --results")


def on_this_machine(entries: Sequence[Entry], root: Path) -> list[Entry]:
    """Leave out what is still to do of races that were begun on another machine, and say so.

    What a minute is worth differs from machine to machine, so nobody could be compared.
    """
    here = machine()
    finished = filter(None, map(read_finished, entry_folders(root)))  # asked for now or not
    begun = {race: machines - {here} for race, machines in machines_by_race(facts for facts, _ in finished).items()}
    left_out = {entry for entry in entries if begun.get(entry.race) and not is_done(root / entry.name)}
    for env_id, minutes in dict.fromkeys(entry.race for entry in entries if entry in left_out):
        where = f"it was begun on {' and '.join(sorted(begun[env_id, minutes]))}, and this is {here}"
        how = "choose other --results to race it here from the beginning"
        print(f"the rest of {env_id}, {minutes:g} minutes, is left out: {where}; {how}", file=sys.stderr)
    return [entry for entry in entries if entry not in left_out]

"""The matrix of a comparison, groups of methods x environments x seeds, from a TOML file or flags to a list of jobs.

[[group]]
methods = ["geo", "ng"]          # ours: with preset (default "default"), and set = {key = value} under a label
envs = ["Hopper-v4", "Walker2d-v4"]
seeds = [0, 1, 2, 3, 4]
steps = 1000000                  # also eval_every, eval_episodes; otherwise the preset's

[[group]]
algorithm = "ppo"                # a baseline: ppo, a2c or trpo, with settings "default" or "zoo"
settings = "zoo"
envs = ["Hopper-v4"]
seeds = [0, 1, 2]
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from geonpg.configs import names, parse_toml
from geonpg.configs.presets import blaming
from geonpg.configs.schema import LARGEST_SEED, is_int
from geonpg.errors import known, require
from geonpg.scripts.common.artifacts import read_text
from geonpg.scripts.jobs.job import Job, baseline_job, our_job, unique
from geonpg.scripts.runs.baseline_settings import ALGORITHMS
from geonpg.scripts.runs.building import RAW, check_actions, make_env
from geonpg.scripts.runs.trust import check_import

Group = Mapping[str, Any]
BUDGET = ("steps", "eval_every", "eval_episodes")
SHARED = ("envs", "seeds", *BUDGET)
OURS = ("methods", "preset", "set", "label", *SHARED)
BASELINE = ("algorithm", "settings", *SHARED)
MOST_SEEDS = 1000  # in one range


def read_groups(path: Path, what: str = "study") -> list[Group]:
    """Read the groups of a study file, or of a file of another kind that has groups."""
    content = read_text(path, what)
    with blaming(str(path)):
        tables = parse_toml(content)
        for key in tables:
            known("key", key, ("description", "group"))
        groups = tables.get("group")
        require(is_list_of(dict, groups), f"a {what} has tables [[group]]")
        return list(groups or ())


def is_list_of(kind: type, values: Any) -> bool:
    """Return whether a value is a list, not empty, of this type."""
    return isinstance(values, list) and len(values) > 0 and all(isinstance(value, kind) for value in values)


def jobs_of(groups: Iterable[Group], threads: Mapping[str, int], named: Collection[str] = ()) -> list[Job]:
    """Make the jobs of a study in order; everything that is wrong with it raises Refused here.

    threads: env_threads, or nothing.
    named: environments whose modules may be imported.
    """
    jobs: list[Job] = []
    for number, group in enumerate(groups, 1):
        with blaming(f"group {number}"):
            jobs += group_jobs(group, threads)
    for env_id in dict.fromkeys(job.env_id for job in jobs):
        check_import(env_id, named, "the study", "--envs")
        make_env(RAW, env_id, 1, 0).close()
    return unique(jobs)


def group_jobs(group: Group, threads: Mapping[str, int]) -> Iterator[Job]:
    """Make the jobs of one group: environment by environment, and all seeds of a method before the next method."""
    ours = "algorithm" not in group
    for key in group:
        known("key", key, OURS if ours else BASELINE)
    envs, seeds = texts(group, "envs"), seeds_of(group)
    shared = {key: group[key] for key in BUDGET if key in group} | dict(threads)
    if not ours:
        algorithm, settings = text(group, "algorithm", ""), text(group, "settings", "default")
        for env_id, seed in product(envs, seeds):
            yield baseline_job(env_id, algorithm, settings, seed, shared)
        return
    preset, label, chosen = text(group, "preset", "default"), label_of(group), overrides_of(group)
    for env_id in envs:
        check_actions(env_id, chosen)
    for env_id, method, seed in product(envs, texts(group, "methods"), seeds):
        yield our_job(env_id, preset, label, seed, {**chosen, **shared, "method": method})


def overrides_of(group: Group) -> dict[str, Any]:
    """Return the settings that a group changes in its preset."""
    chosen = group.get("set", {})
    require(isinstance(chosen, dict), f"set must be a table such as {{gamma = 0.98}}, not {chosen!r}")
    own = [key for key in ("method", *BUDGET) if key in chosen]
    require(not own, f"set cannot hold {', '.join(own)}: the group's own keys say that")
    require(not chosen or "label" in group, "a group with set needs a label: what it makes is no longer the preset's")
    return dict(chosen)


def label_of(group: Group) -> str | None:
    """Return what stands for the preset in folder names; it cannot be the name of another preset or of an algorithm."""
    preset, label = text(group, "preset", "default"), group.get("label")
    plain = label is None or (isinstance(label, str) and re.fullmatch(r"[\w+-][\w.+-]*", label) is not None)
    require(plain, f"label must be a name of letters, digits and . _ + -, not {label!r}")
    taken, family = [*names(), *ALGORITHMS], label or Path(preset).stem
    free = family not in taken or (label is None and family == preset)
    require(free, f"{family!r} is taken: give the group a label that is none of {', '.join(taken)}")
    return label


def text(group: Group, key: str, default: str) -> str:
    """Return a group's value that must be a string."""
    value = group.get(key, default)
    require(isinstance(value, str), f"{key} must be text, not {value!r}")
    return str(value)


def texts(group: Group, key: str) -> list[str]:
    """Return a group's value that must be a list of strings."""
    values = group.get(key)
    require(is_list_of(str, values), f'{key} must be a list of names, such as ["a", "b"], not {values!r}')
    return list(values or ())


def seeds_of(group: Group) -> list[int]:
    """Return a group's list of seeds."""
    seeds = group.get("seeds")
    good = is_list_of(int, seeds) and all(is_int(seed) and 0 <= seed <= LARGEST_SEED for seed in seeds or ())
    require(good, f"seeds must be a list of integers from 0 to {LARGEST_SEED:,}, such as [0, 1, 2], not {seeds!r}")
    return list(seeds or ())


# from flags


def seeds_from(flag: str) -> list[int]:
    """Parse seeds given as "0-4" or "0,2,7-9"."""
    found: list[int] = []
    for part in flag.split(","):
        match = re.fullmatch(r"(\d{1,12})(?:-(\d{1,12}))?", part.strip(), re.ASCII)
        require(match is not None, f"seeds are given as 0-4 or 0,2,5, not {flag!r}")
        assert match is not None
        first, last = int(match[1]), int(match[2] or match[1])
        require(first <= last <= LARGEST_SEED, f"seeds go up from 0 to {LARGEST_SEED:,} at most, not {part.strip()}")
        require(last - first < MOST_SEEDS, f"{last - first + 1:,} seeds are too many: give {MOST_SEEDS:,} at most")
        found += range(first, last + 1)
    return found


def groups_from(methods: str, baselines: str, envs: str, seeds: str, steps: int | None, preset: str) -> list[Group]:
    """Make one group for our methods, and one for each baseline, written as algorithm or algorithm:settings."""
    shared: dict[str, Any] = {"envs": envs.split(","), "seeds": seeds_from(seeds)}
    shared |= {} if steps is None else {"steps": steps}
    groups: list[Group] = [{"methods": methods.split(","), "preset": preset, **shared}] if methods else []
    for item in baselines.split(",") if baselines else ():
        algorithm, _, settings = item.partition(":")
        groups.append({"algorithm": algorithm, "settings": settings or "default", **shared})
    return groups

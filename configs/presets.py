"""Presets: TOML files that hold what differs from the schema, for all tasks or for some.

A file has a one-line `description`, settings, and tables such as [task.Walker2d] (any version) or
[task."Walker2d-v4"] (that one). `extends = "paper"` starts from another preset. The later of these wins:
schema, what is extended, the file's own settings, its table for any version, its table for this one, overrides.
A table's name that is nearly one of FAMILIES is refused as misspelt, unless it has a version.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from geonpg.errors import Refused, known

from .schema import FIELDS, Settings, checked, parsed

SUFFIX = ".toml"
VERSION = re.compile(r"-v\d+$")
FAMILIES = (
    "Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum",
    "Reacher", "Swimmer", "Walker2d",
)  # fmt: skip
CLOSE = 0.85  # similarity of two names, by difflib: Waker2d and Walker2d, not Pendulum and InvertedPendulum
Values = Mapping[str, Any]
# settings of runs that were recorded before these settings existed
EARLIER: Values = {"cautious": False, "curvature_every": 1}
DEEPEST = 10  # levels of tables and lists: ours have four
TOO_DEEP = f"tables and lists may be nested {DEEPEST} levels deep, not more"


@dataclass(frozen=True)
class Layer:
    """Settings, and the file or table that they come from."""

    source: str
    values: Values


@dataclass(frozen=True)
class Preset:
    """One TOML file, its values checked. `extends` is a name, a path, or empty."""

    name: str
    description: str
    extends: str
    values: Values
    tasks: Mapping[str, Values]

    def tables(self, tasks: Iterable[str]) -> list[Layer]:
        """Return its tables for these tasks, where it has any."""
        return [Layer(f"{self.name}, task {task}", self.tasks[task]) for task in tasks if task in self.tasks]


def names() -> list[str]:
    """List the presets that come with the package."""
    found = (entry.name for entry in files("geonpg.configs").iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))


def load(preset: str, env_id: str | None = None, overrides: Mapping[str, Any] = {}) -> Settings:
    """Return the settings of a preset.

    preset: a name, or a path to a .toml file.
    env_id: the task, such as Walker2d-v4; None for what holds for all tasks.
    overrides: settings that win over the preset's.
    """
    values: dict[str, Any] = {}
    for layer in layers(preset, env_id):
        values |= layer.values
    return Settings(**values | checked_values(overrides))


def load_recorded(path: str) -> Settings:
    """Return the settings that a run has recorded; a setting that did not exist then has the value of EARLIER."""
    values = dict(EARLIER)
    for layer in layers(path):
        values |= layer.values
    return Settings(**values)


def layers(preset: str, env_id: str | None = None) -> list[Layer]:
    """List what a preset changes in the schema; later layers win."""
    found: list[Layer] = []
    for part in lineage(preset):
        found += [Layer(part.name, part.values), *part.tables(task_names(env_id))]
    return found


def lineage(preset: str) -> list[Preset]:
    """Read a preset and those that it extends, these first."""
    chain = [read(preset)]
    while chain[0].extends:
        with blaming(chain[0].name):
            if chain[0].extends in [part.name for part in chain]:
                raise Refused(f"extends goes in a circle through {chain[0].extends!r}")
            chain.insert(0, read(chain[0].extends))
    return chain


def task_names(env_id: str | None) -> list[str]:
    """Return the names of a task's tables: without its version, and in full."""
    return [] if env_id is None else list(dict.fromkeys([VERSION.sub("", env_id), env_id]))


def read(preset: str) -> Preset:
    """Read and check one file. A path that it extends is relative to it."""
    text = text_of(preset)
    with blaming(preset):
        content = parse_toml(text)
        description, extends = line(content, "description"), line(content, "extends")
        if extends.endswith(SUFFIX):
            extends = str((Path(preset).parent / extends).resolve())
        tasks = task_tables(content)
        return Preset(preset, description, extends, checked_values(content, ("description", "extends", "task")), tasks)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; text that is nested too deeply to be handled or shown raises TOMLDecodeError, too."""
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError(TOO_DEEP) from None
    level: list[Any] = [content]
    for _ in range(DEEPEST):
        nested = [value for value in level if isinstance(value, dict | list)]
        level = [value for part in nested for value in (part.values() if isinstance(part, dict) else part)]
    if level:
        raise tomllib.TOMLDecodeError(TOO_DEEP)
    return content


def text_of(preset: str) -> str:
    """Read the text of a preset, by name or path; refuse what cannot be read."""
    if not preset.endswith(SUFFIX):
        name = known("preset", preset, names(), " or a path to a .toml file")
        return files("geonpg.configs").joinpath(name + SUFFIX).read_text(encoding="utf-8")
    try:
        return Path(preset).read_text(encoding="utf-8-sig")  # Windows editors begin with a byte-order mark
    except OSError as error:
        raise Refused(f"cannot read preset {preset!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refused(f"cannot read preset {preset!r}: it is not UTF-8 text") from None


@contextmanager
def blaming(source: str) -> Iterator[None]:
    """Put the source's name before the message of an error."""
    try:
        yield
    except (Refused, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{source}: {error}") from None


def line(content: Values, key: str) -> str:
    """Return a line of text under a key, empty if there is none; refuse anything else."""
    text = content.get(key, "")
    if not isinstance(text, str) or not text.isprintable():
        raise Refused(f"{key} must be one line of text, not {text!r}")
    return text


def task_tables(content: Values) -> dict[str, Values]:
    """Return the tables of tasks, by name, with their values checked."""
    tables = content.get("task", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise Refused("task must be tables such as [task.Walker2d]")
    found: dict[str, Values] = {}
    for task, table in tables.items():
        with blaming(f"task {task}"):
            check_name(task)
            found[task] = checked_values(table)
    return found


def check_name(task: str) -> None:
    """Refuse a misspelt task, which would be ignored in silence.

    Any task may be named in full, with a version, but not one of ours in another case.
    """
    family = VERSION.sub("", task)
    version = task.removeprefix(family)
    same = [ours for ours in FAMILIES if ours.lower() == family.lower()]
    close = [] if version else get_close_matches(family, FAMILIES, n=1, cutoff=CLOSE)
    meant = [*same, *close, family][0]
    if meant != family:
        cure = "" if version else f": name one of your own in full, as {task}-v0"
        raise Refused(f"unknown task (did you mean {meant}{version}?){cure}")


def checked_values(values: Values, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Check the settings among `values`; refuse a key that is neither a setting nor named in `besides`."""
    keys = [known("key", key, [*FIELDS, *besides]) for key in values]
    return {key: checked(key, values[key]) for key in keys if key not in besides}


def parse_overrides(items: Iterable[str]) -> dict[str, Any]:
    """Read settings from ["hidden=64,64", "anneal=false", ...], as `--set` takes them; the last of equal keys wins."""
    overrides = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals:
            raise Refused(f"a setting is given as key=value, not {item!r}")
        key = known("key", key.strip(), FIELDS)
        overrides[key] = parsed(key, text.strip())
    return overrides


def shown(value: Any) -> str:
    """Write a value as TOML does, which for these types is as JSON does."""
    return json.dumps(value)


def spelled(value: Any) -> str:
    """Write a value as `--set` takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else shown(value)


def to_toml(settings: Settings, description: str = "") -> str:
    """Write every key and value, after one line of description; `load` reads equal settings back."""
    line = "".join(letter if letter.isprintable() else "?" for letter in description)
    heading = f"description = {json.dumps(line, ensure_ascii=False)}\n" if line else ""
    return heading + "".join(f"{key} = {shown(value)}\n" for key, value in asdict(settings).items())

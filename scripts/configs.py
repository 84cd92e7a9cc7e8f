"""`geonpg configs`: list presets, show every setting of one and where it comes from, or explain every key."""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from geonpg.configs import FIELDS, help_of, layers, legal_words, lineage, load, names, read, shown, spelled, task_names
from geonpg.errors import Refused
from geonpg.scripts.common.parser import Parser
from geonpg.scripts.common.stopping import as_process


def parse(argv: Sequence[str] | None) -> tuple[Parser, Namespace]:
    """Read the command line."""
    parser = Parser("geonpg configs", description="List presets, or show every setting of one, or explain every key.")
    parser.add_argument("preset", nargs="?", metavar="NAME", help=f"{', '.join(names())}, or a path to a .toml file")
    parser.add_argument("--env", metavar="ID", help="show the values for this task, such as Walker2d-v4")
    parser.add_argument("--keys", action="store_true", help="every key: its default, legal values and meaning")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args(argv)
    if arguments.env is not None and arguments.preset is None:
        parser.error(f"--env needs a preset: choose one of {', '.join(names())} or a path to a .toml file")
    if arguments.keys and arguments.preset is not None:
        parser.error("--keys explains the keys of every preset: it takes no preset beside it")
    return parser, arguments


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Align columns, with two spaces between them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def described(preset: str, env_id: str | None) -> dict[str, Any]:
    """Return a preset as plain data: every key with its value, source, help and legal values; and its tasks' tables.

    `tasks` are the tables that this environment's values come from, or all tables if no environment is given.
    """
    parts = lineage(preset)
    sources = {key: layer.source for layer in layers(preset, env_id) for key in layer.values}
    settings = {
        key: {"value": value, "from": sources.get(key, "schema"), "help": help_of(key), "legal": legal_words(key)}
        for key, value in asdict(load(preset, env_id)).items()
    }
    tables = [t for part in parts for t in part.tables(part.tasks if env_id is None else task_names(env_id))]
    return {
        "preset": preset,
        "description": parts[-1].description,
        "env": env_id,
        "settings": settings,
        "tasks": {table.source: table.values for table in tables},
    }


def table(preset: dict[str, Any]) -> str:
    """Print `described` as a table."""
    rows = [("key", "value", "from", "what")]
    rows += [(key, shown(s["value"]), s["from"], s["help"]) for key, s in preset["settings"].items()]
    heading = f"{preset['preset']}: {preset['description']}" if preset["description"] else preset["preset"]
    return "\n\n".join(filter(None, [heading, columns(rows), task_note(preset)]))


def task_note(preset: dict[str, Any]) -> str:
    """Say what tasks change or, if a task is given, whether the preset has values for it."""
    if preset["env"] is not None:
        return "" if preset["tasks"] else f"{preset['preset']} has no values of its own for {preset['env']}"
    said = [(task, ", ".join(f"{k} = {shown(v)}" for k, v in table.items())) for task, table in preset["tasks"].items()]
    return f"Tasks with values of their own (--env ID shows all for one):\n{columns(said)}" if said else ""


def explained() -> dict[str, dict[str, Any]]:
    """Return every key as plain data: its default, legal values and meaning."""
    return {
        key: {"default": field.default, "legal": legal_words(key), "help": field.metadata["help"]}
        for key, field in FIELDS.items()
    }


def key_table(keys: dict[str, dict[str, Any]]) -> str:
    """Print `explained` as a table."""
    rows = [("key", "default", "legal", "what")]
    rows += [(key, spelled(k["default"]), k["legal"], k["help"]) for key, k in keys.items()]
    return f"{columns(rows)}\n\n--set KEY=VALUE changes one for a run; a preset's .toml file holds several."


def main(argv: Sequence[str] | None = None) -> int:
    """Print presets, a preset or keys; return the exit code."""
    parser, arguments = parse(argv)
    if arguments.keys:
        keys = explained()
        print(json.dumps(keys) if arguments.json else key_table(keys))
        return 0
    if arguments.preset is None:
        presets = {name: read(name).description for name in names()}
        print(json.dumps(presets) if arguments.json else columns(list(presets.items())))
        return 0
    try:
        preset = described(arguments.preset, arguments.env)
    except Refused as error:
        parser.error(str(error))
    print(json.dumps(preset) if arguments.json else table(preset))
    return 0


if __name__ == "__main__":
    sys.exit(as_process(main))

"""What a folder's results were made with: written once, compared ever after."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from geonpg.errors import Refused, require
from geonpg.files import write_text

Values = Mapping[str, Any]


def first_difference(one: Values, two: Values, no_matter: Collection[str] = (), usual: Values | None = None) -> str:
    """Describe the first setting that differs, such as "gamma (0.9 and 0.99)"; empty if none does.

    no_matter: settings that may differ.
    usual: values of settings that one side does not have.
    """
    one, two = {**(usual or {}), **one}, {**(usual or {}), **two}
    for key in (key for key in {**one, **two} if key not in no_matter):
        if one.get(key) != two.get(key):
            return f"{key} ({one.get(key)!r} and {two.get(key)!r})"
    return ""


def require_pinned(folder: Path, difference: str, advice: str) -> None:
    """Refuse a folder whose results were made with other settings; `difference` is empty if they were not."""
    require(not difference, f"{folder} was made with other settings, {difference}: {advice}")


def pin(path: Path, settings: Values, advice: str, no_matter: Collection[str] = ()) -> None:
    """Write a folder's settings as JSON; raise Refused if the file is there with other settings.

    advice: what to do then.
    no_matter: settings that may change, and are written again.
    """
    asked = json.loads(json.dumps(settings))
    try:
        there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else asked
    except ValueError as error:
        raise Refused(f"{path} is damaged: {error}; {advice}") from None
    require(isinstance(there, dict), f"{path} is damaged: it must hold a JSON object; {advice}")
    require_pinned(path.parent, first_difference(there, asked, no_matter), advice)
    write_text(path, json.dumps(settings, indent=1) + "\n")


def pin_text(path: Path, text: str, advice: str) -> None:
    """Write a folder's settings as lines of text; raise Refused if the file is there with other lines."""
    there = path.read_text(encoding="utf-8") if path.exists() else text
    differ = [(one, two) for one, two in zip(there.splitlines(), text.splitlines(), strict=False) if one != two]
    words = "{!r} and {!r}".format(*differ[0]) if differ else "" if there == text else "one of which ends earlier"
    require_pinned(path.parent, words, advice)
    write_text(path, text)

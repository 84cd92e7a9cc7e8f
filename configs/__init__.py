"""The settings of a training run, and presets of them. Start with `schema.py`."""

from .presets import (
    EARLIER,
    Layer,
    Preset,
    layers,
    lineage,
    load,
    load_recorded,
    names,
    parse_overrides,
    parse_toml,
    read,
    shown,
    spelled,
    task_names,
    to_toml,
)
from .schema import FIELDS, METHODS, Settings, help_of, legal_words

__all__ = [
    "EARLIER",
    "FIELDS",
    "METHODS",
    "Layer",
    "Preset",
    "Settings",
    "help_of",
    "layers",
    "legal_words",
    "lineage",
    "load",
    "load_recorded",
    "names",
    "parse_overrides",
    "parse_toml",
    "read",
    "shown",
    "spelled",
    "task_names",
    "to_toml",
]

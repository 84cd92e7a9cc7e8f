"""Studies of `geonpg branch` that take seconds, and rows that a test chose."""

import json
from pathlib import Path

from geonpg.scripts.branches.design import DESIGN, Design
from geonpg.scripts.branches.rows import Branch

TINY = {"checkpoints": 2, "every": 512, "updates": 2, "episodes": 2, "held_out": 2, "trunks": 1}
PRESET = """description = "small"
n_envs = 4
n_steps = 32
hidden = [8]
critic_hidden = [8]
steps = 4000
"""


def write_design(base: Path) -> Path:
    """A folder with a tiny design and nothing else; its preset is beside it."""
    preset, results = base / "small.toml", base / "branch"
    preset.write_text(PRESET)
    results.mkdir()
    (results / DESIGN).write_text(json.dumps({**vars(Design(preset=str(preset), **TINY))}))
    return results


def branch_row(rule: str, base: float, shift: float, step: int) -> Branch:
    """A row whose measures are those of its checkpoint, moved by a shift."""
    return Branch(step, rule, base + shift, base / 100 + shift / 1000, 0.0, 1.0 + shift / 1000, abs(shift) / 1000, 0.0)

"""What a map of long steps is made of, read from a TOML file: tasks, batches, sizes of steps, and ways to make one.

preset = "large"                      # of the runs that lead to the checkpoints
trunk = {method = "ng"}               # what they change in it
envs = ["Hopper-v4", "Walker2d-v4"]
seeds = [3000, 3001]
checkpoints = [5, 20]                 # updates
batches = [8192, 32768]               # steps
kls = [0.03, 0.1]
held_out = 131072                     # steps

[sides]                               # which variants are compared, by batch and KL, as an earlier map has found them
"32768/0.1" = ["pcg/geo", "kfac/ng"]

[variants]
"pcg/geo" = {rule = "geo", solver = "pcg", damping = [1.0, [0.3, 0.1]]}  # one for all, for each batch, or for each KL
"kfac/ng" = {rule = "ng", solver = "kfac", damping = 0.1}
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from geonpg.configs import parse_toml
from geonpg.configs.presets import blaming
from geonpg.configs.schema import CONNECTIONS, is_finite, is_int
from geonpg.errors import known, require
from geonpg.scripts.common.artifacts import read_text

CLIP = "clip"  # PPO's way: epochs of minibatches by Adam on the clipped surrogate
DAMPING = 0.1
OURS, THEIRS = "geo", "ng"  # the rules that are compared
MOST_SEED = 4_000_000  # a thousand random seeds are derived from each
LEAST_CURVATURE = 256  # cases; the optimiser measures it on no fewer
RULES = ("ng", "mid", "geo", CLIP)
SOLVERS = ("kfac", "pcg", "cg")


@dataclass(frozen=True)
class Variant:
    """A way to make an update from a batch.

    rule: ng, mid, geo, or clip for PPO's way.
    solver: kfac, pcg or cg.
    damping: for every batch of the grid and every KL: [batches][kls].
    alpha: which of the alpha-connections.
    connection: joint or blocks, as in the settings of a run.
    calibrate: False for the published correction.
    iterations: of pcg and cg.
    substeps: how many steps on the same batch, of which importance ratios carry all but the first.
    search: choose the step by its actual KL; False to take the predicted one, halved if the actual is too large.
    rate: Adam's learning rate, for clip.
    """

    rule: str
    solver: str = "pcg"
    damping: tuple[tuple[float, ...], ...] = ()
    alpha: float = 0.0
    connection: str = "joint"
    calibrate: bool = True
    iterations: int = 10
    substeps: int = 1
    search: bool = True
    rate: float = 3e-4


@dataclass(frozen=True)
class Grid:
    """What is run; changing it means another map."""

    preset: str
    envs: tuple[str, ...]
    seeds: tuple[int, ...]
    checkpoints: tuple[int, ...]
    batches: tuple[int, ...]
    kls: tuple[float, ...]
    held_out: int
    variants: Mapping[str, Variant]
    trunk: Mapping[str, Any] = field(default_factory=dict)
    sides: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    curvature: int = 8192  # cases that it is measured on, at most
    description: str = ""

    def every(self, batch: int) -> int:
        """Of how many cases of a batch curvature is measured on one."""
        return -(-batch // self.curvature)


def read_grid(path: Path) -> Grid:
    """Read a grid; Refused if it is none."""
    text = read_text(path, "grid")
    with blaming(str(path)):
        return grid_of(parse_toml(text))


def grid_of(table: Mapping[str, Any]) -> Grid:
    """Make a grid of a table; Refused for what is missing or not legal."""
    names = [each.name for each in fields(Grid)]
    for key in table:
        known("key", key, names)
    for key in names[:8]:
        require(key in table, f"a grid must have {key}")
    found: dict[str, Any] = dict(table)
    for key, test, words in LISTS:
        require(is_list(table[key], test), f"{key} must be a list of {words}, not {table[key]!r}")
        require(len(set(table[key])) == len(table[key]), f"{key} must not name anything twice: {table[key]!r}")
        found[key] = tuple(table[key])
    require(list(found["checkpoints"]) == sorted(found["checkpoints"]), "checkpoints must increase")
    for key, test, words in SINGLE:
        require(key not in table or test(table[key]), f"{key} must be {words}, not {table.get(key)!r}")
    require(isinstance(table["variants"], dict) and len(table["variants"]) > 0, "a grid has a table [variants]")
    variants: Mapping[str, Any] = table["variants"]
    shape = len(found["batches"]), len(found["kls"])
    found["variants"] = {name: variant_of(name, given, *shape) for name, given in variants.items()}
    found["sides"] = {place: pair_of(place, pair, found) for place, pair in table.get("sides", {}).items()}
    return Grid(**found)


def pair_of(place: str, pair: Any, grid: Mapping[str, Any]) -> tuple[str, str]:
    """Read the two variants that are compared at a place."""
    known("place of sides", place, [place_name(batch, kl) for batch in grid["batches"] for kl in grid["kls"]])
    require(is_list(pair, lambda name: isinstance(name, str)) and len(pair) == 2, f"sides at {place} must be two names")
    ours, theirs = (known("variant", name, grid["variants"]) for name in pair)
    rules = grid["variants"][ours].rule, grid["variants"][theirs].rule
    require(rules == (OURS, THEIRS), f"sides at {place} must be a variant of {OURS} and one of {THEIRS}, not {pair!r}")
    return ours, theirs


def place_name(batch: int, kl: float) -> str:
    """How a batch and a size of step are named together."""
    return f"{batch}/{kl:g}"


def variant_of(name: str, given: Any, batches: int, kls: int) -> Variant:
    """Make a variant of its table."""
    require(isinstance(given, dict) and "rule" in given, f"variant {name} must be a table with a rule")
    for key in given:
        known(f"key of variant {name}", key, [each.name for each in fields(Variant)])
    known("rule", given["rule"], RULES)
    known("solver", given.get("solver", Variant.solver), SOLVERS)
    for key, test, words in OF_VARIANTS:
        require(
            key not in given or test(given[key]), f"{key} of variant {name} must be {words}, not {given.get(key)!r}"
        )
    damping = given.get("damping", DAMPING)
    rows = [spread(row, kls) for row in spread(damping, batches)]
    legal = len(rows) == batches and all(len(row) == kls and is_list(row, is_damping) for row in rows)
    words = "one number, one for each batch, or one for each batch and KL"
    require(legal, f"damping of variant {name} must be {words}, not {damping!r}")
    return Variant(**{**given, "damping": tuple(tuple(map(float, row)) for row in rows)})


def spread(value: Any, count: int) -> list[Any]:
    """Return a list as it is, and anything else so many times."""
    return value if isinstance(value, list) else [value] * count


def is_damping(value: Any) -> bool:
    """Return whether this is a number that can stand on the diagonal of a Fisher matrix."""
    return is_finite(value) and value >= 0


def is_list(value: Any, test: Callable[[Any], bool]) -> bool:
    """Return whether this is a list, not empty, of what passes a test."""
    return isinstance(value, list) and len(value) > 0 and all(map(test, value))


def is_count(value: Any) -> bool:
    """Return whether this is a whole number above 0."""
    return is_int(value) and value > 0


def is_true_or_false(value: Any) -> bool:
    """Return whether this is a truth value."""
    return isinstance(value, bool)


def is_positive(value: Any) -> bool:
    """Return whether this is a number above 0."""
    return is_finite(value) and value > 0


Check = tuple[str, Callable[[Any], bool], str]  # a key, a test of its value, and the legal values in words
COUNT = (is_count, "a whole number above 0")
LISTS: tuple[Check, ...] = (
    ("envs", lambda value: isinstance(value, str), "ids of environments"),
    ("seeds", lambda value: is_int(value) and 0 <= value <= MOST_SEED, f"whole numbers from 0 to {MOST_SEED:,}"),
    ("checkpoints", is_count, "whole numbers above 0"),
    ("batches", is_count, "whole numbers above 0"),
    ("kls", is_positive, "numbers above 0"),
)
SINGLE: tuple[Check, ...] = (
    ("preset", lambda value: isinstance(value, str), "a preset's name"),
    ("trunk", lambda value: isinstance(value, dict), "a table of settings"),
    ("held_out", *COUNT),
    ("curvature", lambda value: is_int(value) and value >= LEAST_CURVATURE, f"at least {LEAST_CURVATURE}"),
)
OF_VARIANTS: tuple[Check, ...] = (
    ("iterations", *COUNT),
    ("substeps", *COUNT),
    ("calibrate", is_true_or_false, "true or false"),
    ("search", is_true_or_false, "true or false"),
    ("alpha", lambda value: is_finite(value) and -1 <= value <= 1, "a number in [-1, 1]"),
    ("connection", CONNECTIONS.test, CONNECTIONS.words),
    ("rate", is_positive, "a number above 0"),
)

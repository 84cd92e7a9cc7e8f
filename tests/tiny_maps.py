"""Maps of long steps that take seconds, and rows that a test chose."""

from pathlib import Path

from geonpg.scripts.branches.rows import rows_path
from geonpg.scripts.maps.rows import Row, write_rows
from geonpg.scripts.maps.trunk import GRID

TINY_GRID = """preset = "default"
envs = ["Reacher-v4"]
seeds = [3000]
checkpoints = [1, 2]
batches = [64, 256]
kls = [0.03, 0.1]
held_out = 256

[trunk]
n_envs = 4
n_steps = 32
hidden = [8]
critic_hidden = [8]
method = "ng"

[sides]
"256/0.1" = ["pcg/geo", "kfac/ng"]

[variants]
"pcg/geo" = {rule = "geo", solver = "pcg", damping = [1.0, [0.1, 0.3]]}
"kfac/ng" = {rule = "ng", solver = "kfac", damping = 0.1}
"""


def write_grid(base: Path) -> Path:
    """A folder of results with a tiny grid and nothing else; the grid's own file is beside it."""
    (base / "tiny.toml").write_text(TINY_GRID)
    (base / "map").mkdir()
    (base / "map" / GRID).write_text(TINY_GRID)
    return base / "map"


def map_row(checkpoint: int, batch: int, variant: str, kl: float, held_out: float) -> Row:
    """A row with this gain."""
    return Row(checkpoint, batch, variant, kl, held_out, 2 * held_out, 4 * held_out, kl, kl / 2, kl, 1, -0.1, 10.0)


def write_synthetic(folder: Path, env_id: str, seed: int, gains: dict[str, float], checkpoints: int) -> None:
    """Rows of a trunk of the tiny grid in which variants differ by known factors, and checkpoints by more."""
    rows = [
        map_row(number, batch, variant, kl, gain * (1 + 3 * (number % 2)) * (1 + 0.01 * (number % 3)))
        for number in range(1, checkpoints + 1)
        for batch in (64, 256)
        for variant, gain in gains.items()
        for kl in (0.03, 0.1)
    ]
    path = rows_path(folder, env_id, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, rows)

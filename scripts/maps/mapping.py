"""What `geonpg branch --grid` does: the queue of trunks, and the tables and the figure of their map."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from geonpg.configs import to_toml
from geonpg.errors import require
from geonpg.scripts.branches.branching import Trunks, require_native
from geonpg.scripts.branches.design import DESIGN
from geonpg.scripts.common.artifacts import Table, write_tables
from geonpg.scripts.common.locks import locked
from geonpg.scripts.common.pin import pin_text
from geonpg.scripts.common.stopping import Signals
from geonpg.scripts.common.style import FORMATS, write_figure
from geonpg.scripts.jobs.concluding import conclude
from geonpg.scripts.jobs.queue import LOCK_SECONDS
from geonpg.scripts.maps.analysis import map_numbers, map_tables, read_map
from geonpg.scripts.maps.figures import map_figure
from geonpg.scripts.maps.grid import Grid, read_grid
from geonpg.scripts.maps.rows import read_rows
from geonpg.scripts.maps.trunk import GRID, settings_of


def check(grid: Grid) -> None:
    """Refuse a grid that cannot be run."""
    for env_id in grid.envs:
        settings = settings_of(grid, env_id)
        require_native(settings, env_id)
        for batch in grid.batches:
            divided = batch % settings.n_envs == 0
            require(divided, f"a batch of {batch} steps is not made of {settings.n_envs} environments")
        rollout = settings.n_envs * settings.n_steps
        require(grid.held_out % rollout == 0, f"held_out must be a multiple of a rollout, {rollout} steps")


def record(path: Path, grid: Grid, results: Path) -> None:
    """Write the grid into the folder, and the settings of its trunks; Refused if others are there."""
    advice = "use the same, or choose other --results"
    require(not (results / DESIGN).exists(), f"{results} holds another experiment of geonpg branch: choose --results")
    pin_text(results / GRID, path.read_text(encoding="utf-8-sig"), advice)
    for env_id in grid.envs:
        folder = results / env_id
        folder.mkdir(exist_ok=True)
        pin_text(folder / "config.toml", to_toml(settings_of(grid, env_id)), advice)


def execute(path: Path, results: Path, jobs: int, signals: Signals) -> Mapping[str, str]:
    """Grow every trunk that is not complete; returns why some failed, by their names."""
    grid = read_grid(path)
    check(grid)
    results.mkdir(parents=True, exist_ok=True)
    with locked(results, LOCK_SECONDS) as lock:
        record(path, grid, results)
        wanted = len(grid.checkpoints) * len(grid.batches) * len(grid.variants) * len(grid.kls)
        cells = [(env_id, seed) for seed in grid.seeds for env_id in grid.envs]
        return Trunks("maps.trunk", " updates", results, cells, wanted, read_rows).grow(jobs, lock, signals)


def report(results: Path) -> tuple[list[Table], dict[str, float]]:
    """Write the tables and the figure of what is there; returns the tables and their numbers."""
    study = read_map(results)
    require(bool(study), f"{results} has no checkpoint yet that every variant has been tried at")
    tables = map_tables(study)
    write_tables(tables, results / "tables.md", "A map of long steps")
    for kind in FORMATS:
        write_figure(map_figure(study), results / f"map.{kind}")
    return tables, map_numbers(study)


def make_map(arguments: Namespace) -> int:
    """Grow the trunks that are not complete and report on all; returns the command's exit code."""
    path, results, jobs = arguments.grid, arguments.results, arguments.jobs
    return conclude(
        "geonpg branch", arguments, lambda signals: execute(path, results, jobs, signals), lambda: report(results)
    )

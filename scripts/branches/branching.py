"""What `geonpg branch` does with its arguments: the queue of trunks, and their tables and figure."""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tqdm import tqdm

from geonpg.configs import Settings, load, to_toml
from geonpg.envs import is_native
from geonpg.errors import require
from geonpg.scripts.branches.analysis import branch_numbers, branch_tables, read_branches
from geonpg.scripts.branches.design import BRANCH_TASKS, DESIGN, Design
from geonpg.scripts.branches.figures import branch_figure
from geonpg.scripts.branches.rows import BRANCH_RULES, read_rows, rows_path
from geonpg.scripts.common.artifacts import Table, write_tables
from geonpg.scripts.common.locks import locked
from geonpg.scripts.common.pin import pin, pin_text
from geonpg.scripts.common.stopping import Signals
from geonpg.scripts.common.style import FORMATS, write_figure
from geonpg.scripts.jobs.child import worker_command
from geonpg.scripts.jobs.concluding import conclude
from geonpg.scripts.jobs.queue import LOCK_SECONDS
from geonpg.scripts.jobs.queue_local import LocalItem, LocalQueue
from geonpg.scripts.runs.building import make_env

POLL_SECONDS = 0.5


def recorded(arguments: Namespace, env_ids: Sequence[str]) -> Design:
    """Write the design into the folder, and the preset's settings; Refused if others are there."""
    design = Design(**{field.name: getattr(arguments, field.name) for field in fields(Design)})
    advice = "use the same, or choose other --results"
    # more trunks may be added: each of them stands for itself
    pin(arguments.results / DESIGN, asdict(design), advice, no_matter=["trunks"])
    for env_id in env_ids:
        path = arguments.results / env_id / "config.toml"
        path.parent.mkdir(exist_ok=True)
        pin_text(path, to_toml(load(design.preset, env_id)), advice)
    return design


def trunk_item(script: str, results: Path, env_id: str, seed: int) -> LocalItem:
    """The process in which a script grows one trunk."""
    arguments = ["--results", str(results), "--env", env_id, "--seed", str(seed)]
    return LocalItem(f"{env_id}/{seed}", lambda: worker_command(script, *arguments), lambda: None)


@dataclass(frozen=True)
class Trunks:
    """The trunks of an experiment, each of which a script grows in a process of its own.

    script: by its name below scripts/.
    unit: what a row is called beside the progress bar.
    results: the folder of the experiment.
    cells: task and seed of every trunk.
    wanted: rows of a trunk that is complete.
    read: a trunk's rows.
    """

    script: str
    unit: str
    results: Path
    cells: Sequence[tuple[str, int]]
    wanted: int
    read: Callable[[Path], Sequence[object]]

    def rows(self, cell: tuple[str, int]) -> int:
        """How many rows a trunk has so far."""
        return len(self.read(rows_path(self.results, *cell)))

    def grow(self, jobs: int, lock: int | None, signals: Signals) -> Mapping[str, str]:
        """Grow every trunk that is not complete, `jobs` at a time; returns why some failed, by their names."""
        todo = [cell for cell in self.cells if self.rows(cell) < self.wanted]
        queue = LocalQueue([trunk_item(self.script, self.results, *cell) for cell in todo], jobs, lock)
        done, total = sum(map(self.rows, self.cells)), len(self.cells) * self.wanted
        with tqdm(total=total, initial=done, unit=self.unit, desc="branch") as bar:
            queue.work(signals, lambda: bar.update(sum(map(self.rows, self.cells)) - bar.n), POLL_SECONDS)
        return queue.failed


def require_native(settings: Settings, env_id: str) -> None:
    """Refuse an environment that does not exist, or that cannot be set back to a state."""
    make_env(settings, env_id, 1, 0).close()
    advice = f"branch needs MuJoCo tasks like {BRANCH_TASKS}"
    require(is_native(env_id), f"{env_id} cannot be set back to a state: {advice}")


def execute(arguments: Namespace, signals: Signals) -> Mapping[str, str]:
    """Run every trunk that is not complete; returns why some failed, by their names."""
    env_ids = arguments.envs.split(",")
    for env_id in env_ids:
        require_native(load(arguments.preset, env_id), env_id)
    arguments.results.mkdir(parents=True, exist_ok=True)
    with locked(arguments.results, LOCK_SECONDS) as lock:
        design = recorded(arguments, env_ids)
        wanted = design.checkpoints * len(BRANCH_RULES)
        cells = [(env_id, seed) for seed in design.seeds for env_id in env_ids]
        trunks = Trunks("branches.trunk", " branches", arguments.results, cells, wanted, read_rows)
        return trunks.grow(arguments.jobs, lock, signals)


def report(results: Path) -> tuple[list[Table], dict[str, float]]:
    """Write the tables and the figure of what is there; returns the tables and their numbers."""
    study = read_branches(results)
    require(bool(study), f"{results} has no checkpoint yet that every rule has been tried at")
    tables = branch_tables(study)
    write_tables(tables, results / "tables.md", "Paired branches")
    for kind in FORMATS:
        write_figure(branch_figure(study), results / f"branch.{kind}")
    return tables, branch_numbers(study)


def branch(arguments: Namespace) -> int:
    """Run the trunks that are not complete and report on all; returns the command's exit code."""
    return conclude(
        "geonpg branch", arguments, lambda signals: execute(arguments, signals), lambda: report(arguments.results)
    )

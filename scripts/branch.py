"""The paired experiment: from the same checkpoints, every rule for a few updates, with the same random numbers.

Interrupt it at any time: the same command goes on. What is tested, and how, is written in docs/branch.md.
"""

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from tqdm import tqdm

from geonpg.configs import load, names, to_toml
from geonpg.envs import is_native
from geonpg.kfac.choice import require
from geonpg.scripts.artifacts import Table, replacing, write_text
from geonpg.scripts.branch_analysis import figure, flat, read_study, tables
from geonpg.scripts.branch_trunk import DESIGN, RULES, Design, design_of, read_rows, rows_path
from geonpg.scripts.building import make_env
from geonpg.scripts.cli import Parser, count
from geonpg.scripts.report_figures import encoded
from geonpg.scripts.runner import Runner, Task, locked
from geonpg.scripts.stopping import Signals, listening

TASKS = "HalfCheetah-v4,Hopper-v4,Walker2d-v4"
POLL_SECONDS = 0.5
FLAGS = [field.name for field in fields(Design)]


def parse(argv: Sequence[str]) -> Namespace:
    parser = Parser("geonpg branch", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/branch"), help="where rows go (%(default)s)")
    parser.add_argument("--envs", default=TASKS, help="default: %(default)s")
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1, help="trunks at a time (%(default)s)")
    parser.add_argument("--preset", default=Design.preset, help=f"{', '.join(names())}, or a .toml file")
    parser.add_argument("--trunks", type=count, default=Design.trunks, help="training runs per task (%(default)s)")
    parser.add_argument("--first-seed", type=count, default=Design.first_seed, help="of the trunks (%(default)s)")
    parser.add_argument("--checkpoints", type=count, default=Design.checkpoints, help="of each trunk (%(default)s)")
    parser.add_argument("--every", type=count, default=Design.every, help="steps between checkpoints (%(default)s)")
    parser.add_argument("--updates", type=count, default=Design.updates, help="of each branch (%(default)s)")
    parser.add_argument("--episodes", type=count, default=Design.episodes, help="of each evaluation (%(default)s)")
    parser.add_argument("--held-out", type=count, default=Design.held_out, help="rollouts held out (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--only-report", action="store_true", help="run nothing: tables and figure from what is there")
    arguments = parser.parse_args(argv)
    for name in (*FLAGS[1:], "jobs"):
        least = 0 if name == "first_seed" else 1
        if getattr(arguments, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}, not {getattr(arguments, name)}")
    return arguments


def recorded(arguments: Namespace, env_ids: Sequence[str]) -> Design:
    """The design, now in the folder; another one there dies."""
    design = Design(**{name: getattr(arguments, name) for name in FLAGS})
    path = arguments.results / DESIGN
    if path.exists():
        there = design_of(arguments.results)
        # more trunks may be added: each of them stands for itself
        if replace(there, trunks=design.trunks) != design:
            raise ValueError(f"{path} says {asdict(there)}: use the same numbers, or choose other --results")
    for env_id in env_ids:
        record_settings(arguments.results / env_id / "config.toml", to_toml(load(design.preset, env_id)))
    write_text(path, json.dumps(asdict(design), indent=1) + "\n")
    return design


def record_settings(path: Path, config: str) -> None:
    """What the preset says today; branches of another day's preset must not stand beside today's."""
    path.parent.mkdir(exist_ok=True)
    if path.exists() and path.read_text(encoding="utf-8") != config:
        raise ValueError(f"{path} was made when the preset had other settings: choose other --results")
    write_text(path, config)


def task_of(results: Path, env_id: str, seed: int) -> Task:
    order = ["branch_trunk", "--results", str(results), "--env", env_id, "--seed", str(seed)]
    return Task(f"{env_id}/{seed}", lambda: [sys.executable, "-m", "geonpg.scripts.worker", *order], lambda: None)


def execute(arguments: Namespace, signals: Signals) -> Mapping[str, str]:
    """Every trunk that is not complete; the reasons of those that failed."""
    env_ids = arguments.envs.split(",")
    for env_id in env_ids:
        make_env(load(arguments.preset, env_id), env_id, 1, 0).close()
        require(is_native(env_id), f"{env_id} cannot be set back to a state: branch needs MuJoCo tasks like {TASKS}")
    arguments.results.mkdir(parents=True, exist_ok=True)
    with locked(arguments.results) as lock:
        design = recorded(arguments, env_ids)
        wanted = design.checkpoints * len(RULES)
        cells = [(env_id, seed) for seed in design.seeds for env_id in env_ids]
        paths = {cell: rows_path(arguments.results, *cell) for cell in cells}
        todo = [cell for cell in cells if len(read_rows(paths[cell])) < wanted]
        runner = Runner([task_of(arguments.results, *cell) for cell in todo], arguments.jobs, lock)
        done = sum(len(read_rows(path)) for path in paths.values())
        with tqdm(total=len(cells) * wanted, initial=done, unit=" branches", desc="branch") as bar:
            try:
                while runner.is_busy and not signals():
                    runner.advance()
                    bar.update(sum(len(read_rows(path)) for path in paths.values()) - bar.n)
                    time.sleep(POLL_SECONDS)
            finally:
                runner.stop()
        return runner.failed


def report(results: Path) -> tuple[list[Table], dict[str, float]]:
    """Tables and figure of what is there, written beside it."""
    study = read_study(results)
    require(bool(study), f"{results} has no checkpoint yet that every rule has been tried at")
    found = tables(study)
    write_text(results / "tables.md", "\n\n".join(table.markdown() for table in found) + "\n")
    for kind in ("png", "svg"):
        with replacing(results / f"branch.{kind}") as temporary:
            temporary.write_bytes(encoded(figure(study), kind))
    return found, flat(study)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(list(sys.argv[1:] if argv is None else argv))
    failed: Mapping[str, str] = {}
    try:
        with listening() as signals:
            if not arguments.only_report:
                failed = execute(arguments, signals)
            if signals():
                print("stopped: the same command goes on", file=sys.stderr)
                return 128 + signals.received
            found, numbers = report(arguments.results)
    except (ValueError, OSError) as error:
        print(f"geonpg branch: {error}", file=sys.stderr)
        return 2
    print(json.dumps(numbers) if arguments.json else "\n\n".join(table.markdown() for table in found))
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

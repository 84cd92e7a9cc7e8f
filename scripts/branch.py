"""The paired experiment: from the same checkpoints, every rule for a few updates, with the same random numbers.

Interrupt it at any time: the same command goes on. What is tested, and how, is written in docs/branch.md.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from geonpg.configs import names
from geonpg.scripts.artifacts import RUNS
from geonpg.scripts.branch_design import TASKS, Design
from geonpg.scripts.cli import Parser, count
from geonpg.scripts.stopping import as_process


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser("geonpg branch", description=__doc__)
    parser.add_argument("--results", type=Path, default=RUNS / "branch", help="where rows go (%(default)s)")
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
    for name in ("jobs", *(field.name for field in fields(Design) if field.name != "preset")):
        least = 0 if name == "first_seed" else 1
        if getattr(arguments, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}, not {getattr(arguments, name)}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    from geonpg.scripts.branching import branch

    return branch(arguments)


if __name__ == "__main__":
    sys.exit(as_process(main))

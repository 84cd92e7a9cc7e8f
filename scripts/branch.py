"""The paired experiment: from the same checkpoints, every rule for a few updates, with the same random numbers.

Interrupt it at any time: the same command goes on. What is tested, and how, is written in docs/branch.md.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.configs import names
from geonpg.scripts.branches.design import BRANCH_TASKS, Design
from geonpg.scripts.common.artifacts import RUNS
from geonpg.scripts.common.parser import MOST_EPISODES, Parser, seed, up_to
from geonpg.scripts.common.stopping import as_process


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser("geonpg branch", description=__doc__)
    parser.add_argument("--results", type=Path, default=RUNS / "branch", help="where rows go (%(default)s)")
    parser.add_argument("--envs", default=BRANCH_TASKS, help="default: %(default)s")
    parser.add_argument("--jobs", type=up_to(1000), default=os.cpu_count() or 1, help="trunks at a time (%(default)s)")
    parser.add_argument("--preset", default=Design.preset, help=f"{', '.join(names())}, or a .toml file")
    parser.add_argument(
        "--trunks", type=up_to(1000), default=Design.trunks, help="training runs per task (%(default)s)"
    )
    parser.add_argument("--first-seed", type=seed, default=Design.first_seed, help="of the trunks (%(default)s)")
    parser.add_argument(
        "--checkpoints", type=up_to(10_000), default=Design.checkpoints, help="of each trunk (%(default)s)"
    )
    parser.add_argument(
        "--every", type=up_to(10**9), default=Design.every, help="steps between checkpoints (%(default)s)"
    )
    parser.add_argument("--updates", type=up_to(10**6), default=Design.updates, help="of each branch (%(default)s)")
    parser.add_argument(
        "--episodes", type=up_to(MOST_EPISODES), default=Design.episodes, help="of each evaluation (%(default)s)"
    )
    parser.add_argument(
        "--held-out", type=up_to(10_000), default=Design.held_out, help="rollouts held out (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--only-report", action="store_true", help="run nothing: tables and figure from what is there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    from geonpg.scripts.branches.branching import branch

    return branch(arguments)


if __name__ == "__main__":
    sys.exit(as_process(main))

"""The paired experiment: a few updates by every rule from the same checkpoints with the same random numbers.

Interrupt it at any time; the same command continues. What is tested, and how, is written in docs/branch.md. With
--grid FILE: a map of long steps instead, one update by every variant in the file from every batch (docs/large.md).
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.configs import names
from geonpg.cores import usable_cores
from geonpg.scripts.branches.design import BRANCH_TASKS, Design
from geonpg.scripts.common.artifacts import RUNS
from geonpg.scripts.common.parser import MOST_EPISODES, Parser, seed, up_to
from geonpg.scripts.common.stopping import as_process

COUNTS = {  # numbers of the design, with the largest that each may be
    "trunks": (1000, "training runs per task"),
    "checkpoints": (10_000, "checkpoints of each trunk"),
    "every": (10**9, "steps between checkpoints"),
    "updates": (10**6, "updates of each branch"),
    "episodes": (MOST_EPISODES, "episodes of each evaluation"),
    "held_out": (10_000, "held-out rollouts at each checkpoint"),
}


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the command's arguments."""
    parser = Parser("geonpg branch", description=__doc__)
    parser.add_argument("--results", type=Path, help="folder of the results (runs/branch; runs/large with --grid)")
    parser.add_argument("--grid", type=Path, metavar="FILE", help="make a map of long steps; the file says all of it")
    parser.add_argument("--envs", default=BRANCH_TASKS, help="default: %(default)s")
    parser.add_argument("--jobs", type=up_to(1000), default=usable_cores(), help="trunks at a time (%(default)s)")
    parser.add_argument("--preset", default=Design.preset, help=f"{', '.join(names())}, or a .toml file")
    parser.add_argument(
        "--first-seed", type=seed, default=Design.first_seed, help="seed of the first trunk (%(default)s)"
    )
    for name, (most, what) in COUNTS.items():
        option, usual = f"--{name.replace('_', '-')}", getattr(Design, name)
        parser.add_argument(option, type=up_to(most), default=usual, help=f"{what} (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--only-report", action="store_true", help="run nothing, only make tables and figure again")
    arguments = parser.parse_args(argv)
    arguments.results = arguments.results or RUNS / ("branch" if arguments.grid is None else "large")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    arguments = parse(argv)
    if arguments.grid is not None:
        from geonpg.scripts.maps.mapping import make_map

        return make_map(arguments)
    from geonpg.scripts.branches.branching import branch

    return branch(arguments)


if __name__ == "__main__":
    sys.exit(as_process(main))

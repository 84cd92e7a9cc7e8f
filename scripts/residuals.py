"""Compare the rules, and others' optimisers, on deterministic least-squares problems.

Networks that solve differential equations, fits with long curved valleys, NIST's nonlinear regressions, and variational
inference where a straight step leaves the cone. Interrupt it at any time; the same command continues. What is compared,
and how, is written in docs/residuals.md.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.configs.schema import METHODS
from geonpg.cores import usable_cores
from geonpg.scripts.common.artifacts import RUNS
from geonpg.scripts.common.parser import Parser, up_to
from geonpg.scripts.common.stopping import as_process

# What there is, named without importing it.
PROBLEM_NAMES = (
    "poisson", "cubic", "burgers", "front", "three-exponentials", "exponentials-apart", "gaussian-bumps", "rosenbrock",
    "nist", "variational",
)  # fmt: skip
METHOD_NAMES = (
    *METHODS, "adam", "lbfgs", "adam-lbfgs", "scipy-lm", "scipy-trf", "scipy-lm-unscaled", "scipy-trf-unscaled",
)  # fmt: skip


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the command's arguments."""
    parser = Parser("geonpg residuals", description=__doc__)
    names = {"problems": PROBLEM_NAMES, "methods": METHOD_NAMES}
    for option, all_names in names.items():
        listed = ", ".join(all_names)
        parser.add_argument(f"--{option}", nargs="+", default=all_names, metavar="NAME", help=f"{listed} (all)")
    parser.add_argument("--seeds", help="such as 0-9 (the default; 1000-1001 with --quick) or 0,3,5")
    parser.add_argument("--width", type=up_to(64), help="of the networks' hidden layers (16)")
    parser.add_argument("--jacobians", type=up_to(10_000), help="at which networks are compared (60)")
    parser.add_argument("--results", type=Path, default=RUNS / "residuals", help="folder of the results (%(default)s)")
    parser.add_argument("--jobs", type=up_to(1000), default=usable_cores(), help="processes (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a look in a minute or two: less of everything")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--only-report", action="store_true", help="run nothing, only make tables and figures again")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    arguments = parse(argv)
    from geonpg.scripts.least_squares.study import study_residuals

    return study_residuals(arguments)


if __name__ == "__main__":
    sys.exit(as_process(main))

"""Solve InvertedPendulum-v4 and CartPole-v1 with the default preset, three seeds each: how many steps does it take?

Every run has its folder in runs/solve; finished ones are not repeated, and a killed one goes on where it was.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from geonpg.errors import Refused
from geonpg.scripts.common.parser import Parser
from geonpg.scripts.common.stopping import as_process


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and solve the tasks; return the exit code."""
    parser = Parser("geonpg solve", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/solve"), help="where the run folders go")
    runs = parser.parse_args(argv).runs
    from geonpg.scripts.jobs.solving import solve

    try:
        return solve(runs)
    except (Refused, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(as_process(main))

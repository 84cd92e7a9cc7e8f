"""`geonpg invariance`: the paper's invariance experiments, as tables and figures."""

import sys
from collections.abc import Sequence
from pathlib import Path

from geonpg.scripts.common.artifacts import RUNS
from geonpg.scripts.common.parser import Parser
from geonpg.scripts.common.stopping import as_process


def parser() -> Parser:
    """Make the command's parser."""
    parser = Parser(prog="geonpg invariance", description="The paper's invariance experiments, in about a minute.")
    parser.add_argument("--out", type=Path, default=RUNS / "invariance", help="for tables and figures (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it works")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiments; return the command's exit code."""
    arguments = parser().parse_args(argv)
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser().error(f"cannot make the folder {str(arguments.out)!r}: {error.strerror}")
    from geonpg.scripts.geometry.study import study_invariance

    return study_invariance(arguments.out, arguments.quick)


if __name__ == "__main__":
    sys.exit(as_process(main))

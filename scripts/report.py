"""`geonpg report`: a folder of runs as one page with curves, tables, intervals and verdicts.

Runs are at DIR/<any name>/, as `geonpg train` leaves them, or at DIR/<task>/<preset or algorithm>/<method or settings>/
<seed>/ or deeper, as `geonpg compare` does. The page is report.html and its figures are figures/*.svg and *.png, in
runs/report unless --out names another folder. Tables hold finished runs only; unfinished runs are listed, and their
curves are drawn. What `geonpg branch` left in DIR/branch and DIR/large is included, and so is the paper's figure from
runs in DIR/paper.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from geonpg.errors import Refused
from geonpg.scripts.common.artifacts import RUNS
from geonpg.scripts.common.parser import Parser
from geonpg.scripts.common.stopping import as_process


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = Parser("geonpg report", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results"), metavar="DIR", help="default: results")
    parser.add_argument("--out", type=Path, default=RUNS / "report", metavar="DIR", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    arguments = parser.parse_args(argv)
    if not arguments.folder.is_dir():
        parser.error(f"{arguments.folder} is no folder: name one that `geonpg train` or `geonpg compare` made")
    from geonpg.scripts.reports.reporting import report

    try:
        report(arguments)
    except OSError as error:
        parser.error(f"cannot write {error.filename}: {error.strerror}")
    except Refused as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(as_process(main))

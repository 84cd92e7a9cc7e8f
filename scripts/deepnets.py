"""`geonpg deepnets`: the paper's deep-network experiments. The same command continues a run that was stopped."""

import sys
from collections.abc import Sequence
from pathlib import Path

from geonpg.configs.schema import METHODS
from geonpg.errors import Refused
from geonpg.scripts.common.artifacts import RUNS
from geonpg.scripts.common.parser import Parser, seed, up_to
from geonpg.scripts.common.stopping import as_process


def parser() -> Parser:
    """Make the command's parser; it names what DEEP_TASKS and DEEP_METHODS hold without importing them."""
    parser = Parser(
        "geonpg deepnets", description="Train a deep network by natural gradients. A stopped run continues."
    )
    parser.add_argument("--task", required=True, metavar="NAME", help="curves, mnist, faces or mnist-classifier")
    parser.add_argument(
        "--method",
        nargs="+",
        default=METHODS,
        metavar="NAME",
        help="ng, mid, geo, geof (the default), ng-long, geodesic, perturb, adam, adam-full, kfac, kfac-geo",
    )
    parser.add_argument("--size", choices=("small", "full"), default="small", help="a few minutes, or the paper's")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with MNIST's IDX files or olivettifaces.mat")
    parser.add_argument("--cases", type=up_to(10**6), help="training cases, instead of the size's")
    parser.add_argument("--test-cases", type=up_to(10**6), help="test cases, instead of the size's")
    parser.add_argument("--updates", type=up_to(10**9), help="updates, instead of the size's")
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument(
        "--threads", type=up_to(1024), help="of torch's; they decide the last bits; default: 1 if small, else all"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"default: {RUNS}/deepnets/TASK-SIZE")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and write tables and figures; return the command's exit code."""
    arguments = parser().parse_args(argv)
    from geonpg.scripts.deep.study import study_deepnets

    try:
        return study_deepnets(arguments)
    except Refused as error:
        parser().error(str(error))


if __name__ == "__main__":
    sys.exit(as_process(main))

"""A process of `geonpg residuals`: some pieces of one problem, one after the other, on one core.

Started by the command for every network and seed, and for every other problem; what is complete is left as it is.
"""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import torch

from geonpg.scripts.common.parser import Parser
from geonpg.scripts.common.stopping import listening
from geonpg.scripts.least_squares.design import DESIGN, Design
from geonpg.scripts.least_squares.pieces import pieces_of


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the arguments, which a person does not write."""
    parser = Parser("geonpg residuals, a part of it", description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--problem", required=True)
    parser.add_argument("--methods", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Make the pieces that are not complete; return the exit code."""
    arguments = parse(argv)
    torch.set_num_threads(1)
    design = Design(**json.loads((arguments.results / DESIGN).read_text(encoding="utf-8")))
    with listening() as signals:
        for piece in pieces_of(arguments.results, design, arguments.problem, arguments.methods, arguments.seeds):
            if not signals() and not piece.is_complete:
                piece.work(signals)
        return 128 + signals.received if signals() else 0

"""Evaluate a trained policy; record a video of it, export it to ONNX: `geonpg evaluate runs/NAME`."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.scripts.common.parser import MOST_EPISODES, Parser, seed, up_to
from geonpg.scripts.common.stopping import as_process


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser("geonpg evaluate", description=__doc__)
    parser.add_argument(
        "path",
        type=Path,
        metavar="RUN|MODEL",
        help="a run folder, a .ckpt model or an SB3 .zip (which SB3 unpickles: trust its origin)",
    )
    parser.add_argument("--model", choices=("best", "final"), help="which of a run folder's models (default: final)")
    parser.add_argument("--env", metavar="ID", help="of an SB3 .zip; of others, only if it is module:ID")
    saved = "statistics of an SB3 .zip's observations: .npz of geonpg's Normalize, or what SB3's VecNormalize saved"
    parser.add_argument("--normalization", type=Path, metavar="FILE", help=saved)
    parser.add_argument("--episodes", type=up_to(MOST_EPISODES), default=20)
    parser.add_argument("--seed", type=seed, default=0, help="of the episodes; a run's own evaluations have its seed")
    parser.add_argument("--stochastic", action="store_true", help="draw actions instead of taking the likeliest")
    parser.add_argument("--video", type=Path, metavar="FILE.mp4", help="record one episode")
    parser.add_argument("--export", type=Path, metavar="FILE.onnx", help="raw observations to actions within bounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every episode")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    from geonpg.scripts.models.evaluating import evaluate

    return evaluate(arguments)


if __name__ == "__main__":
    sys.exit(as_process(main))

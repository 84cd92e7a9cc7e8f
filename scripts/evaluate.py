"""Evaluate a trained policy; record a video of it, export it to ONNX: `geonpg evaluate runs/NAME`."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.scripts.common.parser import MOST_EPISODES, Parser, seed, up_to
from geonpg.scripts.common.stopping import as_process


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the command's arguments."""
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
    parser.add_argument("--export", type=Path, metavar="FILE.onnx", help="raw observations to actions within bounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every episode")
    add_video_options(parser)
    return parser.parse_args(argv)


def add_video_options(parser: Parser) -> None:
    """Add the options of a video; LOOKS in models/film.py holds their defaults."""
    needs = "MuJoCo draws by EGL where there is no screen (Debian: apt-get install libegl1 libgl1)"
    group = parser.add_argument_group(
        "video", f"One episode as a film, small enough for a page as .gif or .webp. {needs}."
    )
    group.add_argument("--video", type=Path, metavar="FILE", help="record it as .mp4, .gif or .webp")
    group.add_argument("--curve", action="store_true", help="put the run's learning curve beside it")
    group.add_argument("--fps", type=up_to(50), help="pictures per second, at most (default: 30 of an .mp4, else 15)")
    group.add_argument("--width", type=up_to(4096, 16), help="in pixels (default: as drawn of an .mp4, else 300)")
    group.add_argument("--seconds", type=up_to(3600), help="at most (default: a whole episode of an .mp4, else 8)")
    group.add_argument("--colours", type=up_to(256, 2), help="of a .gif (default: 64)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    arguments = parse(argv)
    from geonpg.scripts.models.evaluating import evaluate

    return evaluate(arguments)


if __name__ == "__main__":
    sys.exit(as_process(main))

"""Search for better settings on one task: Ray Tune's ASHA over the keys below, `geonpg tune --env Hopper-v4`.

Every trial is a run of ours in a folder of its own; bad ones end early. The same command goes on with an interrupted
search. The best settings become a preset file that `geonpg train --preset FILE` takes.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.configs import names
from geonpg.scripts.common.artifacts import file_name
from geonpg.scripts.common.parser import Parser, count, up_to
from geonpg.scripts.common.stopping import as_process


def parse(argv: Sequence[str] | None) -> Namespace:
    """Parse the command line; arguments that cannot work end the command with one sentence."""
    parser = Parser("geonpg tune", description=__doc__)
    parser.add_argument("--env", required=True, metavar="ID", help="environment, Walker2d-v4 for example")
    parser.add_argument("--preset", default="default", help=f"to improve: {', '.join(names())}, or a .toml file")
    parser.add_argument("--trials", type=up_to(100_000), default=32, help="settings that are tried (default: 32)")
    parser.add_argument(
        "--steps", type=count, default=200_000, help="of a trial that runs to its end (default: 200000)"
    )
    parser.add_argument("--minutes", type=float, help="stop starting and running trials after so long")
    parser.add_argument("--out", type=Path, help="the preset file (default: tuned-ENV.toml)")
    parser.add_argument("--results", type=Path, help="where trials go (default: runs/tune/ENV)")
    parser.add_argument("--cluster", default="", metavar="ADDRESS", help="of a Ray cluster (default: Ray started here)")
    arguments = parser.parse_args(argv)
    for name in ("steps", "minutes"):
        value = getattr(arguments, name)
        if value is not None and value <= 0:
            parser.error(f"--{name} must be above 0, not {value:g}")
    arguments.out = arguments.out or Path(f"tuned-{file_name(arguments.env)}.toml")
    arguments.results = (arguments.results or Path("runs/tune") / file_name(arguments.env)).resolve()
    if arguments.out.suffix != ".toml":
        parser.error(f"--out must be a .toml file, so that --preset takes it, not {arguments.out}")
    if not arguments.out.parent.is_dir():
        parser.error(f"--out must be in a folder that exists, not {arguments.out}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and search; return the exit code."""
    arguments = parse(argv)
    from geonpg.scripts.jobs.tuning import tune

    return tune(arguments)


if __name__ == "__main__":
    sys.exit(as_process(main))

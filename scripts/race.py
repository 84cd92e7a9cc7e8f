"""Race against the clock: who has the best policy after so many minutes on this machine?

Contestants train one at a time, each in a process of its own with all cores. The clock stands still while policies are
evaluated. The same command goes on with a race that was interrupted: finished entries are never repeated, and the one
that was interrupted begins anew. A race file has tables [[group]] with contestants, envs, seeds and minutes. What is
measured, how, and what is unfair in it: docs/race.md.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.scripts.common.parser import Parser
from geonpg.scripts.common.stopping import as_process

FLAGS = ("envs", "contestants", "seeds", "minutes")  # what a race file says otherwise


def parse(argv: Sequence[str]) -> Namespace:
    """Parse the command line; arguments that contradict one another end the command with one sentence."""
    parser = Parser("geonpg race", description=__doc__)
    parser.add_argument("race", type=Path, nargs="?", metavar="RACE.toml", help="or the flags that follow")
    parser.add_argument(
        "--envs", default="", help="HalfCheetah-v4,Walker2d-v4; of a race file, those that are module:ID"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="of training for each (default: %(default)g)")
    parser.add_argument(
        "--contestants",
        default="",
        help="geonpg,ppo,trpo,sac,tqc,sbx-sac,rltools-ppo (default: all that are installed)",
    )
    parser.add_argument("--seeds", default="0", help="0-2 or 0,2,5 (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=Path("results/race"), help="where entries go (%(default)s)")
    arguments = parser.parse_args(argv)
    given = [name for name in FLAGS if getattr(arguments, name) != parser.get_default(name)]
    if arguments.race and all(":" in name for name in arguments.envs.split(",")):
        given.remove("envs")
    if arguments.race and given:
        parser.error(f"the race file says who races: it takes no --{given[0]} beside it")
    if not arguments.race and not arguments.envs:
        parser.error("name a race file, or environments by --envs")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and race; return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = parse(given)
    from geonpg.scripts.races.racing import race

    return race(arguments, given)


if __name__ == "__main__":
    sys.exit(as_process(main))

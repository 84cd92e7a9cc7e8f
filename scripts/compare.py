"""Methods x environments x seeds, ours and SB3's, as a queue: `geonpg compare STUDY.toml`.

One folder per run. Finished runs are never repeated, interrupted ones go on where they were, failed ones are tried
again once and then reported. A study file has tables [[group]] with methods or algorithm, envs, seeds and steps.
"""

import sys
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.configs import names
from geonpg.cores import usable_cores
from geonpg.scripts.common.parser import Parser, count, up_to
from geonpg.scripts.common.stopping import as_process

FLAGS = ("methods", "envs", "seeds", "steps", "preset", "baselines")  # what a study file says otherwise


def parse(argv: Sequence[str]) -> Namespace:
    """Parse the command line; arguments that contradict one another end the command with one sentence."""
    parser = Parser("geonpg compare", description=__doc__)
    parser.add_argument("study", type=Path, nargs="?", metavar="STUDY.toml", help="or the flags that follow")
    parser.add_argument("--methods", default="", help="ours, geo,ng for example")
    parser.add_argument("--baselines", default="", help="ppo, a2c, trpo; ppo:zoo for rl-zoo3's tuned settings")
    parser.add_argument("--envs", default="", help="HalfCheetah-v4,Walker2d-v4; of a study, those that are module:ID")
    parser.add_argument("--seeds", default="0-4", help="0-4 or 0,2,5 (default: 0-4)")
    parser.add_argument("--steps", type=count, help="environment steps of each run (default: the preset's)")
    parser.add_argument("--preset", default="default", help=f"of our methods: {', '.join(names())}, or a .toml file")
    parser.add_argument("--results", type=Path, default=Path("results/study"), help="where runs go (%(default)s)")
    cores = usable_cores()
    parser.add_argument(
        "--jobs", type=up_to(1000), help=f"runs at a time on this machine (default: its cores, {cores})"
    )
    parser.add_argument(
        "--cluster", nargs="?", const="", metavar="ADDRESS", help="on a Ray cluster, or on Ray started here"
    )
    parser.add_argument("--cpus", type=float, help="of a run on a cluster (default: 1)")
    parser.add_argument(
        "--compact", action=BooleanOptionalAction, default=True, help="drop models and checkpoints of finished runs"
    )
    arguments = parser.parse_args(argv)
    given = [name for name in FLAGS if getattr(arguments, name) != parser.get_default(name)]
    if arguments.study and all(":" in name for name in arguments.envs.split(",")):
        given.remove("envs")
    if arguments.study and given:
        parser.error(f"the study file says what is run: it takes no --{given[0]} beside it")
    if not arguments.study and not (arguments.envs and (arguments.methods or arguments.baselines)):
        parser.error("name a study file, or --envs with --methods or --baselines")
    if arguments.cluster is not None and arguments.jobs is not None:
        parser.error("--jobs is for this machine: on a --cluster, as many run as have their --cpus there")
    if arguments.cluster is None and arguments.cpus is not None:
        parser.error("--cpus goes with --cluster; on this machine, --jobs says how many run at a time")
    arguments.jobs = cores if arguments.jobs is None else arguments.jobs
    arguments.cpus = 1.0 if arguments.cpus is None else arguments.cpus
    if arguments.cpus <= 0:
        parser.error(f"--cpus must be above 0, not {arguments.cpus:g}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and make the runs; return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = parse(given)
    from geonpg.scripts.jobs.comparing import compare

    return compare(arguments, given)


if __name__ == "__main__":
    sys.exit(as_process(main))

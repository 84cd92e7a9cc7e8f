"""The arguments of `geonpg train`, checked against one another."""

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.configs import names
from geonpg.cores import usable_cores
from geonpg.scripts.common.parser import Parser, count, seed, up_to

DESCRIPTION = """Train an agent in one run folder: `geonpg train --env Walker2d-v4 --method geo`.

With --seeds 0-4, train one per seed, several at a time; the same command goes on with what was interrupted.
Under `torchrun --nproc-per-node N` the N processes train one agent, each with its share of the environments.
"""


def parse(argv: Sequence[str] | None) -> Namespace:
    """Parse the command line; an argument that cannot be used ends the command with one sentence."""
    parser = Parser("geonpg train", description=DESCRIPTION)
    parser.add_argument("--env", metavar="ID", help="environment, Walker2d-v4 for example")
    parser.add_argument("--method", help="update rule: ng, mid, geo or geof (default: the preset's)")
    parser.add_argument("--preset", default="default", help=f"{', '.join(names())}, or a .toml file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="`geonpg configs --keys` lists the keys"
    )
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument(
        "--seeds", metavar="0-4", help="a run for each of these, 0-4 or 0,2,5, as processes of their own"
    )
    cores = usable_cores()
    parser.add_argument("--jobs", type=up_to(1000), help=f"runs of --seeds at a time (default: cores, {cores})")
    parser.add_argument("--steps", type=count, help="environment steps in all")
    parser.add_argument("--n-envs", type=count, help="environments side by side")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders go (default: runs)")
    parser.add_argument("--folder", type=Path, help="this run's folder (default: named after the run, in --runs)")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with a run, bit for bit")
    arguments = parser.parse_args(argv)
    if arguments.env is None and arguments.resume is None:
        parser.error("name an environment by --env, or a run to go on with by --resume")
    fixed = [name for name in vars(arguments) if name not in ("resume", "steps", "env")]  # --env says what the run says
    given = [name for name in fixed if getattr(arguments, name) != parser.get_default(name)]
    if arguments.resume and given:
        parser.error(f"a run keeps its settings: --resume takes --steps beside it, not --{given[0].replace('_', '-')}")
    if arguments.seeds is not None:
        alone = [name for name in ("resume", "folder", "seed") if getattr(arguments, name) != parser.get_default(name)]
        if alone:
            parser.error(f"--seeds makes several runs: --{alone[0]} is for one")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            parser.error("--seeds trains every agent in a process of its own: start it without torchrun")
    if arguments.jobs is not None and arguments.seeds is None:
        parser.error("--jobs says how many runs of --seeds are made at a time: it goes with --seeds")
    arguments.jobs = cores if arguments.jobs is None else arguments.jobs
    return arguments

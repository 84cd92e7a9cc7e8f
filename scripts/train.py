"""Train an agent in one run folder: `geonpg train --env Walker2d-v4 --method geo`.

Under `torchrun --nproc-per-node N` the N processes train one agent, each with its share of the environments.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from geonpg.configs import names
from geonpg.scripts.cli import Parser, count, seed
from geonpg.scripts.stopping import as_process


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser("geonpg train", description=__doc__)
    parser.add_argument("--env", metavar="ID", help="environment, Walker2d-v4 for example")
    parser.add_argument("--method", help="update rule: ng, mid, geo or geof (default: the preset's)")
    parser.add_argument("--preset", default="default", help=f"{', '.join(names())}, or a .toml file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="`geonpg configs --keys` lists the keys"
    )
    parser.add_argument("--seed", type=seed, default=0)
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
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    from geonpg.scripts.training import train

    return train(arguments)


if __name__ == "__main__":
    sys.exit(as_process(main))

"""Train one baseline (PPO, A2C or TRPO) in a process of its own, with the same folder, evaluations and files as ours.

`geonpg compare` starts this script; `geonpg train --resume` can resume its runs as well.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from geonpg.configs import FIELDS
from geonpg.errors import Refused
from geonpg.finite import BrokenEnvironment
from geonpg.scripts.common.locks import alone
from geonpg.scripts.common.parser import Parser, count, refuse, seed
from geonpg.scripts.common.stopping import Stopped, listening
from geonpg.scripts.runs import baseline_settings as zoo
from geonpg.scripts.runs.baseline_plan import BUDGET, BaselinePlan, config_of
from geonpg.scripts.runs.run import Run


def parse(argv: Sequence[str] | None) -> Namespace:
    """Parse the command line: the settings of a new run, or the folder of one to resume."""
    parser = Parser("geonpg.scripts.runs.baseline", description=__doc__)
    parser.add_argument("--algorithm", help=", ".join(zoo.ALGORITHMS))
    parser.add_argument("--settings", default="default", help=" or ".join(zoo.SETTINGS))
    parser.add_argument("--env", metavar="ID")
    parser.add_argument("--seed", type=seed, default=0)
    for key in BUDGET:
        parser.add_argument(f"--{key.replace('_', '-')}", type=count, default=FIELDS[key].default)
    parser.add_argument("--folder", type=Path, help="of a new run")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with a run, bit for bit")
    arguments = parser.parse_args(argv)
    new = [arguments.algorithm, arguments.env, arguments.folder]
    if arguments.resume is None and None in new:
        parser.error("name --algorithm, --env and --folder, or a run to go on with by --resume")
    return arguments


def plan_from(arguments: Namespace) -> BaselinePlan:
    """Make the plan that the arguments describe."""
    budget = {key: getattr(arguments, key) for key in BUDGET}
    config = config_of(arguments.algorithm, arguments.settings, arguments.env, budget)
    return BaselinePlan.of_config(arguments.env, arguments.seed, config)


def prepared(arguments: Namespace) -> AbstractContextManager[Run[Any]]:
    """Begin or resume the run that the arguments name, with its folder locked."""
    if arguments.resume:
        return alone(arguments.resume, partial(Run.resume, arguments.resume, env_id=arguments.env))
    plan = plan_from(arguments)
    return alone(arguments.folder, partial(Run.begin, plan, arguments.folder))


def main(argv: Sequence[str] | None = None) -> int:
    """Train until the end or a signal; return the exit code."""
    arguments = parse(argv)
    try:
        with listening() as signals, prepared(arguments) as run:
            if not run.is_complete:
                run.train(signals)
            return 0
    except Stopped:
        return 128 + signals.received
    except (Refused, OSError, BrokenEnvironment) as error:
        return refuse("geonpg.scripts.runs.baseline", error, getattr(error, "frames", ""))


if __name__ == "__main__":
    sys.exit(main())

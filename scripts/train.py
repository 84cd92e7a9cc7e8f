"""Train an agent in one run folder: `geonpg train --env Walker2d-v4 --method geo`.

With --seeds 0-4, train one per seed, several at a time; the same command goes on with what was interrupted.
Under `torchrun --nproc-per-node N` the N processes train one agent, each with its share of the environments.
"""

import sys
from collections.abc import Sequence

from geonpg.scripts.common.stopping import as_process, leave
from geonpg.scripts.runs.arguments import parse


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and train; return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = parse(given)
    if arguments.seeds is not None:
        from geonpg.scripts.jobs.seeds import train_seeds

        return train_seeds(arguments, given)
    from geonpg.scripts.runs.training import train

    return train(arguments)


if __name__ == "__main__":
    sys.exit(leave(as_process(main)))

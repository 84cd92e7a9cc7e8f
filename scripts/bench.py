"""Benchmarks. Each prints a table, or with --json one flat object of name: number.

Timings are medians of interleaved repeats and only their ratios mean anything: the machine is noisy.
"""

import json
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from geonpg.scripts.common.parser import Parser, up_to
from geonpg.scripts.common.stopping import as_process

BENCHES = {
    "update": ("update", "what one policy update costs, per rule and solver"),
    "trust-region": ("trust_region", "actual over predicted KL, and the correction's residual"),
    "deepnets": ("deepnets", "what one Hessian-free update of a deep autoencoder costs, per rule"),
    "noise": ("noise", "how much of an update's gain is left on data that it has not seen"),
    "drift": ("drift", "what carries a solved policy away: its own steps, or the normalisation under it"),
    "envs": ("envs", "environment steps per second against gymnasium, SB3, EnvPool and the limit"),
    "train": ("train", "environment steps per second of whole training against SB3 and the limit"),
    "resume": ("resume", "what kill -9 at random moments costs a run, and whether it changes the result"),
    "damage": ("damage", "whether damaged or edited files of a run are refused, or change nothing"),
    "scaling": ("scaling", "how the cost of training grows with batch, network, environments and processes"),
    "finite": ("finite", "whether a number that is none ever reaches a policy, over tasks, rules and rates"),
}

DRAWN = ("scaling",)
COUNTS = {"kills": "resume", "damages": "damage", "edits": "damage"}  # options, and the benchmark that takes them
MOST = 1_000_000


def parse(argv: Sequence[str] | None) -> Namespace:
    lines = "\n".join(f"  {name:14}{what}" for name, (_, what) in BENCHES.items())
    parser = Parser("geonpg bench", description=lines, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=BENCHES, metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--figure", type=Path, metavar="FILE.png", help="draw it too (scaling)")
    parser.add_argument("--kills", type=up_to(MOST), help="so many, of short runs (resume)")
    parser.add_argument("--damages", type=up_to(MOST, low=0), help="of files, so many (damage; default: 1000)")
    parser.add_argument(
        "--edits", type=up_to(MOST, low=0), help="of states behind right checksums, so many (damage; default: 200)"
    )
    arguments = parser.parse_args(argv)
    for option, name in COUNTS.items():
        if getattr(arguments, option) is not None and arguments.name != name:
            parser.error(f"--{option} goes with {name}, not with {arguments.name}")
    if arguments.figure and arguments.name not in DRAWN:
        parser.error(f"--figure goes with {', '.join(DRAWN)}, not with {arguments.name}")
    if arguments.figure and arguments.figure.suffix not in (".png", ".svg"):
        parser.error(f"--figure must end in .png or .svg, not {arguments.figure}")
    if arguments.figure and not arguments.figure.parent.is_dir():
        parser.error(f"--figure must be in a folder that exists, not {arguments.figure}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    counts = {name: getattr(arguments, name) for name in COUNTS if getattr(arguments, name) is not None}
    module = import_module(f"geonpg.scripts.benches.{'kills' if 'kills' in counts else BENCHES[arguments.name][0]}")
    try:
        results: dict[str, float] = module.measure(**counts)
    except KeyboardInterrupt:
        print("stopped: a benchmark keeps nothing", file=sys.stderr)
        return 130
    print(json.dumps(results) if arguments.json else module.table(results))
    if arguments.figure:
        from geonpg.scripts.common.style import write_figure

        write_figure(module.figure(results), arguments.figure)
    return 1 if results.get(f"{arguments.name}/lost") else 0


if __name__ == "__main__":
    sys.exit(as_process(main))

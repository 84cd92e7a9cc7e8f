"""Benchmarks. Each prints a table, or with --json one flat object of name: number.

Timings are medians of interleaved repeats and only their ratios mean anything: the machine is noisy. What a benchmark
consists of is said in benches/findings.py.
"""

import json
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from geonpg.errors import Refused
from geonpg.scripts.common.parser import Parser, refuse, up_to
from geonpg.scripts.common.stopping import as_process

BENCHES = {  # each is the module of this name in benches/
    "update": "what one policy update costs, per rule and solver",
    "trust-region": "actual over predicted KL, and the correction's residual",
    "deepnets": "what one Hessian-free update of a deep autoencoder costs, per rule",
    "savings": "what cheaper updates of critic and policy lose",
    "critic": "whether a critic whose damping follows the gain ratio fits better",
    "noise": "how much of an update's gain is left on data that it has not seen",
    "drift": "what carries a solved policy away: its own steps, or the normalisation under it",
    "envs": "environment steps per second against gymnasium, SB3, EnvPool and the limit",
    "train": "environment steps per second of whole training against SB3, RLtools and the limit",
    "resume": "what kill -9 at random moments costs a run, and whether it changes the result",
    "damage": "whether damaged or edited files of a run are refused, or change nothing",
    "scaling": "how the cost of training grows, by batch, network, environments, processes and cores",
    "finite": "whether anything but finite numbers reaches a policy, over tasks, rules and rates",
}

DRAWN = ("scaling",)
OPTIONS = {"kills": ("resume",), "damages": ("damage",), "edits": ("damage",), "envs": ("envs", "train")}  # whose
MOST = 1_000_000


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the command line; refuse options of other benchmarks."""
    lines = "\n".join(f"  {name:14}{what}" for name, what in BENCHES.items())
    parser = Parser("geonpg bench", description=lines, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=BENCHES, metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--figure", type=Path, metavar="FILE.png", help="draw a figure too (scaling)")
    parser.add_argument("--kills", type=up_to(MOST), help="kill short runs so many times (resume)")
    parser.add_argument("--damages", type=up_to(MOST, low=0), help="damage files so many times (damage; default: 1000)")
    parser.add_argument(
        "--edits", type=up_to(MOST, low=0), help="edit states so many times, checksums valid (damage; default: 200)"
    )
    parser.add_argument("--envs", metavar="ID,ID", help="measure on these native environments (envs, train)")
    arguments = parser.parse_args(argv)
    for option, benches in OPTIONS.items():
        if getattr(arguments, option) is not None and arguments.name not in benches:
            parser.error(f"--{option} goes with {', '.join(benches)}, not with {arguments.name}")
    if arguments.figure and arguments.name not in DRAWN:
        parser.error(f"--figure goes with {', '.join(DRAWN)}, not with {arguments.name}")
    if arguments.figure and arguments.figure.suffix not in (".png", ".svg"):
        parser.error(f"--figure must end in .png or .svg, not {arguments.figure}")
    if arguments.figure and not arguments.figure.parent.is_dir():
        parser.error(f"--figure must be in a folder that exists, not {arguments.figure}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark; return the command's exit code."""
    arguments = parse(argv)
    options = {name: getattr(arguments, name) for name in OPTIONS if getattr(arguments, name) is not None}
    from geonpg.scripts.benches.findings import DrawnFindings, Findings, flat

    module = import_module(f"geonpg.scripts.benches.{arguments.name.replace('-', '_')}")
    try:
        findings: Findings = module.measure(**options)
    except Refused as error:
        return refuse("geonpg bench", error)
    except KeyboardInterrupt:
        print("stopped: a benchmark keeps nothing", file=sys.stderr)
        return 130
    print(json.dumps(flat(findings.numbers())) if arguments.json else findings.table())
    if arguments.figure and isinstance(findings, DrawnFindings):
        from geonpg.scripts.common.style import write_figure

        write_figure(findings.figure(), arguments.figure)
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(as_process(main))

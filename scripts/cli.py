"""The `geonpg` command: one subcommand per file of this folder."""

import sys
from collections.abc import Sequence
from importlib import import_module

from geonpg.scripts.common.stopping import as_process

COMMANDS = {
    "train": "train an agent: --env Walker2d-v4 --method geo",
    "evaluate": "evaluate a trained policy; record a video of it, export it to ONNX",
    "compare": "train methods x environments x seeds, ours and SB3's, as a queue that can be interrupted",
    "race": "race against the clock: ours, SB3's, SBX's and RLtools' algorithms, minutes on this machine",
    "tune": "search for better settings on one task, on Ray Tune",
    "solve": "count the steps until the default preset solves InvertedPendulum-v4 and CartPole-v1",
    "invariance": "run the paper's invariance experiments: Gamma fit, orders of the rules, a neural policy",
    "deepnets": "train the paper's deep autoencoders and classifier, by natural gradients, Adam and K-FAC",
    "residuals": "compare rules and other optimisers on least squares: PINNs, sloppy fits, NIST regressions",
    "bench": "measure the cost and accuracy of updates, environments and training",
    "branch": "compare the rules from the same checkpoints with the same random numbers, pair by pair",
    "report": "write a page about a folder of runs: curves, intervals, verdicts",
    "configs": "list the presets of a training run, show their settings, explain every key",
}


def usage() -> str:
    """List the commands, a line each."""
    wide = max(map(len, COMMANDS))
    lines = [f"  {name:{wide}}  {what}" for name, what in COMMANDS.items()]
    return "usage: geonpg COMMAND ...\n\n" + "\n".join(lines) + "\n\n`geonpg help COMMAND` explains one."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and return its exit code; its module is imported only now."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from importlib.metadata import version

        print(f"geonpg {version('geonpg')}")
        return 0
    if arguments[0] not in COMMANDS:
        print(f"geonpg: unknown command {arguments[0]!r}: choose one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    module = import_module(f"geonpg.scripts.{arguments[0]}")
    return int(module.main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(as_process(main))

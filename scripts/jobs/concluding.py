"""How a command ends that runs what is missing of an experiment and reports on all of it."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping

from geonpg.errors import Refused
from geonpg.scripts.common.artifacts import Table, markdown
from geonpg.scripts.common.parser import refuse
from geonpg.scripts.common.stopping import Signals, listening

Execute = Callable[[Signals], Mapping[str, str]]  # runs what is missing; returns reasons by the name of what failed
Report = Callable[[], tuple[list[Table], dict[str, float]]]


def conclude(command: str, arguments: Namespace, execute: Execute, report: Report) -> int:
    """Run what is missing, unless only a report is wanted, and print the report; returns the command's exit code."""
    failed: Mapping[str, str] = {}
    try:
        with listening() as signals:
            if not arguments.only_report:
                failed = execute(signals)
            if signals():
                print("stopped: the same command continues", file=sys.stderr)
                return 128 + signals.received
            tables, numbers = report()
    except (Refused, OSError) as error:
        return refuse(command, error)
    print(json.dumps(numbers) if arguments.json else markdown(tables))
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    return 1 if failed else 0

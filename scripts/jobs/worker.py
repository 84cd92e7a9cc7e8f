"""Run one script in a process that ends with its parent: `python -m geonpg.scripts.jobs.worker train ...`.

The parent holds the other end of the standard input. When it closes, even because the parent was killed, the script is
asked to stop, and saves its state.
"""

import os
import signal
import sys
import threading
from importlib import import_module

from geonpg.scripts.common.stopping import as_process


def end_with(pipe: int) -> None:
    """Wait until the pipe's other end is closed, then ask this process to stop."""
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Run the script named by the first argument with the other arguments; return its exit code."""
    name, *arguments = sys.argv[1:]
    threading.Thread(target=end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    return int(import_module(f"geonpg.scripts.{name}").main(arguments))


if __name__ == "__main__":
    sys.exit(as_process(main))

"""One script in a process that ends when whoever started it does: `python -m geonpg.scripts.jobs.worker train ...`.

Who starts it holds the other end of its standard input. When that closes, by a kill as well, the script is asked to
stop, and saves its state.
"""

import os
import signal
import sys
import threading
from importlib import import_module

from geonpg.scripts.common.stopping import as_process


def end_with(pipe: int) -> None:
    """Wait until nobody holds the other end, then ask this process to stop."""
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    name, *arguments = sys.argv[1:]
    threading.Thread(target=end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    return int(import_module(f"geonpg.scripts.{name}").main(arguments))


if __name__ == "__main__":
    sys.exit(as_process(main))

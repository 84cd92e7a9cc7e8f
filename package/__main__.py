"""The `geonpg` command, also as `python -m geonpg`: Ctrl-C is handled before anything else is imported."""

import sys

from geonpg.scripts.common.stopping import as_process


def command() -> int:
    """Import the command and run it."""
    from geonpg.scripts.cli import main

    return main()


def main() -> int:
    """Run the command as this process; return its exit code."""
    return as_process(command)


if __name__ == "__main__":
    sys.exit(main())

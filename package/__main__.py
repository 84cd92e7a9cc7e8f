"""The `geonpg` command, by this name or as `python -m geonpg`: Ctrl-C is heard before anything else is imported."""

import sys

from geonpg.scripts.common.stopping import as_process


def command() -> int:
    from geonpg.scripts.cli import main

    return main()


def main() -> int:
    return as_process(command)


if __name__ == "__main__":
    sys.exit(main())

"""Commands of `geonpg`, called in this process."""

from collections.abc import Callable

import pytest

Main = Callable[[list[str]], int]


def exit_code(main: Main, *arguments: object) -> int:
    """Call a command; return its exit code, whether it returns or raises it."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as leaving:
        return int(leaving.code or 0)


def refused(capsys: pytest.CaptureFixture[str], main: Main, *arguments: object) -> str:
    """Call a command with arguments that it refuses; return the one sentence that it answers with."""
    capsys.readouterr()
    assert exit_code(main, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("geonpg")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err

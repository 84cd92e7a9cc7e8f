"""The `geonpg` command."""

import subprocess
import sys
from pathlib import Path

import pytest

from geonpg.scripts import cli

ROOT = Path(__file__).resolve().parents[2]


def test_every_subcommand_is_a_file_with_a_main() -> None:
    for name in cli.COMMANDS:
        assert (ROOT / "scripts" / f"{name}.py").is_file()


def test_help_lists_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in cli.COMMANDS)


def test_no_command_and_a_wrong_one_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert cli.main(["trian"]) == 2
    assert capsys.readouterr().err == f"geonpg: unknown command 'trian': choose one of {', '.join(cli.COMMANDS)}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_wrong_argument_is_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--no-such-option"])
    assert stopped.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize("command", [["scripts/bench.py"], ["-m", "geonpg.scripts.bench"]], ids=["file", "module"])
def test_scripts_run_as_files_and_as_modules(command: list[str]) -> None:
    result = subprocess.run([sys.executable, *command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "trust-region" in result.stdout

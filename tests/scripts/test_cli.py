"""The `geonpg` command."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from geonpg.scripts import cli

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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


@pytest.mark.parametrize("path", sorted((ROOT / "scripts").glob("*.py")), ids=lambda path: path.stem)
def test_C13_every_command_counts_alike(path: Path) -> None:
    assert "type=int" not in path.read_text()


ABSURD = {
    "branch": "--trunks 1e9, --episodes 1e9, --updates 1e20, --first-seed 1e20, --jobs 1e20",
    "compare": "--jobs 1e20",
    "deepnets": "--cases 1e12, --threads 1e9, --seed 1e30, --updates 1e20",
    "evaluate": "--episodes 1e9, --seed 1e20",
    "train": "--seed 1e20, --jobs 1e20",
    "tune": "--trials 1e20",
}


@pytest.mark.parametrize(("command", "options"), ABSURD.items(), ids=list(ABSURD))
def test_B6_absurd_numbers_are_one_sentence(
    command: str, options: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for option in options.split(", "):
        with pytest.raises(SystemExit) as stopped:
            cli.main([command, *option.split()])
        assert stopped.value.code == 2
        name, number = option.split()
        said = capsys.readouterr().err
        assert said.startswith(f"geonpg {command}: argument {name}: must be from ")
        assert said.endswith(f", not {number}\n")
        assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_D_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"geonpg {PROJECT['version']}\n"


def test_D_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help"]) == 0
    assert capsys.readouterr().out == f"{cli.usage()}\n"
    told = []
    for arguments in (["help", "configs"], ["configs", "--help"]):
        with pytest.raises(SystemExit) as done:
            cli.main(arguments)
        assert done.value.code == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert told[0].startswith("usage: geonpg configs ")
    assert cli.main(["help", "trian"]) == 2
    assert capsys.readouterr().err.startswith("geonpg: unknown command 'trian': choose one of ")


HEAVY = ("torch", "numpy", "scipy", "gymnasium", "mujoco", "stable_baselines3", "matplotlib", "ray", "tensorboard")
ASK_FOR_HELP = """
import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from geonpg.scripts import cli

for arguments in [], *([name] for name in cli.COMMANDS):
    with suppress(SystemExit), redirect_stdout(StringIO()) as printed:
        cli.main([*arguments, "--help"])
    print("usage: geonpg" in printed.getvalue(), *arguments, *set(sys.argv[1:]) & sys.modules.keys())
"""


def test_D_help_imports_nothing_that_takes_long() -> None:
    """Packages that take seconds are imported when there is work to do: `geonpg train --help` answers at once."""
    command = [sys.executable, "-c", ASK_FOR_HELP, *HEAVY]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["True", *(f"True {name}" for name in cli.COMMANDS)]


WAYS = {
    "file": ["scripts/bench.py"],
    "module": ["-m", "geonpg.scripts.bench"],
    "package": ["-m", "geonpg", "bench"],  # D: the same as the `geonpg` command
}


@pytest.mark.parametrize("way", WAYS)
def test_a_command_runs_as_a_file_as_a_module_and_of_the_package(way: str) -> None:
    command = [sys.executable, *WAYS[way], "--help"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "trust-region" in result.stdout


def test_D_the_command_is_the_package() -> None:
    assert PROJECT["scripts"] == {"geonpg": "geonpg.__main__:main"}

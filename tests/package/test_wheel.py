"""The wheel: what a user installs holds every package, and works without the repository."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import torch

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
PACKAGES = Path(torch.__file__).parents[1]  # of others: without `site`, the editable install of geonpg is not found
USE = """
import sys
sys.path += sys.argv[1:]
from geonpg import *
import geonpg
from geonpg.configs import load as preset
from geonpg.scripts import cli
assert geonpg.__file__.startswith(sys.argv[1]), geonpg.__file__
assert preset("default", "Hopper-v4").method == "geo"
assert cli.main(["--version"]) == 0
print(__version__, ACKTR.__name__, NaturalGradient.__name__, Normalize.__name__, make_vec.__name__, load.__name__)
"""


def built(folder: Path) -> Path:
    """A wheel of the sources as they are, made in a copy of them."""
    source = folder / "source"
    for name in SETUPTOOLS["package-dir"].values():
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_a_wheel_holds_every_file_and_works_alone(tmp_path: Path) -> None:
    with ZipFile(built(tmp_path)) as wheel:
        held = set(wheel.namelist())
        wheel.extractall(tmp_path / "installed")
    for package, folder in SETUPTOOLS["package-dir"].items():
        files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".toml", ".typed")]
        assert files
        assert {f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder)}" for path in files} <= held
    command = [sys.executable, "-I", "-S", "-c", USE, tmp_path / "installed", PACKAGES]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    version = printed[-1].split()[0]
    assert printed[0] == f"geonpg {version}"
    assert printed[-1] == f"{version} ACKTR NaturalGradient Normalize make_vec load"

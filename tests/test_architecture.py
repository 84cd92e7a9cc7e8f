"""The shape of the project: packaging, the direction of imports, sizes."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = [f for f in ("agents", "configs", "envs", "kfac", "scripts") if (ROOT / f).is_dir()]
PACKAGES = {"geonpg": "package", **{f"geonpg.{folder}": folder for folder in FOLDERS}}
FILES = [path for folder in PACKAGES.values() for path in sorted((ROOT / folder).glob("*.py"))]

# Which of our folders, and which foreign packages, a folder may import.
ALLOWED = {
    "kfac": ({"kfac"}, {"torch", "numpy", "scipy"}),
    "envs": ({"envs"}, {"numpy", "gymnasium", "mujoco", "stable_baselines3"}),
    "configs": ({"configs"}, set()),
    "agents": ({"agents", "kfac"}, None),
    "scripts": (set(FOLDERS), None),
    "package": ({"scripts"}, set()),
}


def imports(path: Path) -> set[tuple[str, ...]]:
    """Every module that a file imports, as dotted parts; relative ones as geonpg.<folder>."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add(("geonpg", path.parent.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(tuple(node.module.split(".")))
    return found


def test_packages_are_the_folders_on_disk() -> None:
    setuptools = PROJECT["tool"]["setuptools"]
    assert sorted(setuptools["packages"]) == sorted(PACKAGES)
    assert setuptools["package-dir"] == PACKAGES
    for folder in PACKAGES.values():
        assert (ROOT / folder / "__init__.py").is_file()
        assert (ROOT / folder / "py.typed").is_file()
        nested = [p for p in (ROOT / folder).iterdir() if p.is_dir() and p.name != "__pycache__"]
        assert nested == [], "folders stay flat: a sub-package would be missing from the wheel"


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_dependencies_point_one_way(path: Path) -> None:
    ours, foreign = ALLOWED[path.parent.name]
    standard = set(__import__("sys").stdlib_module_names)
    for parts in imports(path):
        if parts[0] == "geonpg":
            assert parts[1] in ours, f"{path.parent.name} must not import {'.'.join(parts)}"
        elif foreign is not None and parts[0] not in standard:
            assert parts[0] in foreign, f"{path.parent.name} must not import {parts[0]}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_files_and_functions_stay_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= 300
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} is too long"


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.parent.name == "kfac" and p.name != "__init__.py"], ids=lambda p: p.stem
)
def test_only_the_table_knows_the_rules_by_name(path: Path) -> None:
    """No `if method == ...`: a rule's name stands in RULES and in defaults, and is never compared."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            constants = [c.value for c in ast.walk(node) if isinstance(c, ast.Constant)]
            assert not {"ng", "mid", "geo", "geof", "ng_exact", "geo_exact"} & set(map(str, constants))


def test_no_type_checker_is_silenced() -> None:
    assert not [path for path in FILES if "type: ignore" in path.read_text()]

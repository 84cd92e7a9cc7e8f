"""The shape of the project: packaging, the direction of imports, sizes."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"geonpg": "package"} | {f"geonpg.{name}": name for name in ("agents", "configs", "envs", "kfac", "scripts")}

BOTTOM = {"cores", "errors", "files", "finite"}  # modules of geonpg itself, which every room may import

# Which of ours a room may import, beside itself and the bottom, and which foreign packages (None: any). A room that is
# not in the first column does not exist; "scripts" is the commands, which no room imports.
ROOMS: dict[str, tuple[set[str], set[str] | None]] = {
    "package": ({"agents", "envs", "kfac", "scripts", "scripts.common", "scripts.models"}, {"numpy"}),
    "kfac": ({"kfac.hessian_free"}, {"torch", "numpy", "scipy"}),
    "kfac.hessian_free": ({"kfac"}, {"torch"}),
    "envs": ({"envs.physics"}, {"numpy", "gymnasium", "mujoco", "stable_baselines3"}),
    "envs.physics": (set(), {"numpy", "numba", "llvmlite", "mujoco"}),
    "configs": (set(), set()),
    "agents": ({"kfac"}, None),
}
LIBRARY = {"agents", "configs", "envs", "kfac"}
BELOW = {  # the rooms of scripts/, each with those that stand below it
    "common": set(),
    "runs": {"common"},
    "jobs": {"common", "runs"},
    "models": {"common", "runs"},
    "branches": {"common", "runs", "jobs"},
    "maps": {"common", "runs", "jobs", "branches"},
    "races": {"common", "runs", "jobs"},
    "reports": {"common", "runs", "branches", "maps", "races"},
    "geometry": {"common"},
    "deep": {"common"},
    "least_squares": {"common", "runs", "jobs"},
    "benches": {"common", "runs", "jobs", "models", "branches", "races", "deep"},
}
ROOMS |= {f"scripts.{room}": (LIBRARY | {f"scripts.{name}" for name in below}, None) for room, below in BELOW.items()}
ROOMS["scripts"] = (LIBRARY | {f"scripts.{room}" for room in BELOW}, None)
COMMANDS = {
    "bench", "branch", "cli", "compare", "configs", "deepnets", "evaluate", "invariance", "race", "report", "residuals",
    "rl_zoo", "solve", "train", "tune",
}  # fmt: skip


def folder_of(room: str) -> Path:
    return ROOT / room.replace(".", "/")


def room_of(path: Path) -> str:
    return ".".join(path.parent.relative_to(ROOT).parts)


FILES = [path for room in ROOMS for path in sorted(folder_of(room).glob("*.py"))]
SHORT = [str(path.relative_to(ROOT)) for path in FILES]
every_file = pytest.mark.parametrize("path", FILES, ids=SHORT)


def imports(path: Path) -> set[tuple[str, ...]]:
    """Every module that a file imports, as dotted parts from `geonpg` or a foreign package on."""
    found = set()
    here = ("geonpg", *path.parent.relative_to(ROOT).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            stem = here[: len(here) + 1 - node.level] if node.level else ()
            module = (*stem, *(node.module.split(".") if node.module else ()))
            found |= {(*module, alias.name) for alias in node.names}
    return found


def imported_room(parts: tuple[str, ...]) -> str:
    """The room that an import of ours reaches: the longest one that its name begins with."""
    if parts[1] in BOTTOM:
        return "bottom"
    inner = parts[1:]
    names = (".".join(inner[:length]) for length in range(len(inner), 0, -1))
    return next((name for name in names if name in ROOMS), "package")


def test_packages_are_the_folders_on_disk() -> None:
    setuptools = PROJECT["tool"]["setuptools"]
    packages = {"geonpg" if room == "package" else f"geonpg.{room}": folder_of(room) for room in ROOMS}
    on_disk = {path.parent for top in FOLDERS.values() for path in (ROOT / top).rglob("*.py")}
    assert set(packages.values()) == on_disk
    assert sorted(setuptools["packages"]) == sorted(packages), "a package that is not listed is missing from the wheel"
    assert setuptools["package-dir"] == FOLDERS
    for folder in packages.values():
        assert (folder / "__init__.py").is_file()
        assert (folder / "py.typed").is_file()


def test_the_top_of_scripts_is_the_list_of_commands() -> None:
    assert {path.stem for path in (ROOT / "scripts").glob("*.py")} == COMMANDS | {"__init__"}
    assert not {room.split(".")[-1] for room in ROOMS if room.startswith("scripts.")} & COMMANDS
    assert not set(BELOW) & sys.stdlib_module_names, "`python scripts/train.py` would find the room instead"


@every_file
def test_dependencies_point_one_way(path: Path) -> None:
    room = room_of(path)
    ours, foreign = ROOMS[room]
    for parts in imports(path):
        if parts[0] == "geonpg":
            reached = imported_room(parts)
            assert reached in ours | {room, "bottom"}, f"{room} must not import {'.'.join(parts)}"
            if reached == room == "scripts":
                assert path.name == "cli.py" or parts[2:3] == ("cli",), "commands do not import one another"
        elif foreign is not None and parts[0] not in sys.stdlib_module_names:
            assert parts[0] in foreign, f"{room} must not import {parts[0]}"


@every_file
def test_outsiders_use_what_kfac_exports(path: Path) -> None:
    """Its files may be rearranged; what `geonpg.kfac` exports stays. Tests may reach inside."""
    exported = next(
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / "kfac" / "__init__.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    if not room_of(path).startswith("kfac"):
        reached = {parts[2:] for parts in imports(path) if parts[:2] == ("geonpg", "kfac")}
        assert reached <= {(name,) for name in exported}, "import from geonpg.kfac, and export there what is missing"


@every_file
def test_files_and_functions_stay_short(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= 300
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 40, f"{node.name} is too long"


def nodes_of(*folders: str) -> Iterator[ast.AST]:
    """Return every node of the source in some folders and the rooms in them."""
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            yield from ast.walk(ast.parse(path.read_text()))


@pytest.mark.parametrize("folder", ["agents", "envs"])
def test_types_say_what_things_are(folder: str) -> None:
    """`Any` says nothing: below ten in a thousand lines."""
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py"))
    count = sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes_of(folder))
    assert count / lines < 0.010


@pytest.mark.parametrize("folder", ["agents", "envs", "kfac"])
def test_public_functions_are_documented(folder: str) -> None:
    public = [node for node in nodes_of(folder) if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    assert sum(ast.get_docstring(node) is not None for node in public) >= 0.8 * len(public)


@pytest.mark.parametrize(
    "path", [p for p in FILES if room_of(p).startswith("kfac") and p.name != "__init__.py"], ids=lambda p: p.stem
)
def test_only_the_table_knows_the_rules_by_name(path: Path) -> None:
    """No `if method == ...`: a rule's name stands in RULES and in defaults, and is never compared."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            constants = [c.value for c in ast.walk(node) if isinstance(c, ast.Constant)]
            assert not {"ng", "mid", "geo", "geof", "ng_exact", "geo_exact"} & set(map(str, constants))


def test_no_type_checker_is_silenced() -> None:
    assert not [path for path in FILES if "type: ignore" in path.read_text()]

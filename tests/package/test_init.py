"""`import geonpg`: public names, each imported when it is first used."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import geonpg
from geonpg.agents.acktr import ACKTR
from geonpg.envs.make import make_vec
from geonpg.envs.normalize import Normalize
from geonpg.kfac.optimizer import NaturalGradient
from geonpg.scripts.models.loading import load

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAMES = {
    "ACKTR": ACKTR,
    "NaturalGradient": NaturalGradient,
    "Normalize": Normalize,
    "__version__": VERSION,
    "load": load,
    "make_vec": make_vec,
}
LAZY = """
import sys
import geonpg
assert set(geonpg.__all__) <= set(dir(geonpg))
print(*{"torch", "numpy", "gymnasium", "importlib.metadata"} & sys.modules.keys())
geonpg.__version__
print(*{"torch", "numpy", "gymnasium"} & sys.modules.keys())
"""


def test_public_names_are_those_of_their_modules() -> None:
    assert sorted(geonpg.__all__) == sorted(NAMES)
    for name, value in NAMES.items():
        found = getattr(geonpg, name)
        assert found == value
        assert vars(geonpg)[name] is found, "afterwards it is an ordinary attribute"
        assert name in dir(geonpg)


def test_a_star_imports_them_all() -> None:
    found: dict[str, object] = {}
    exec("from geonpg import *", found)
    del found["__builtins__"]
    assert found == NAMES


def test_type_checkers_see_every_name() -> None:
    source = ast.parse((ROOT / "package" / "__init__.py").read_text())
    (checking,) = [node for node in source.body if isinstance(node, ast.If)]
    seen = {alias.name for node in checking.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(NAMES) - {"__version__"}


def test_importing_geonpg_imports_nothing_that_takes_long() -> None:
    printed = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=True).stdout
    assert printed == "\n\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'geonpg' has no attribute 'PPO'$"):
        _ = geonpg.PPO
    with pytest.raises(ImportError):
        exec("from geonpg import PPO")


def test_saved_agents_name_the_class_where_it_always_was() -> None:
    assert f"{geonpg.ACKTR.__module__}.{geonpg.ACKTR.__qualname__}" == "geonpg.agents.acktr.ACKTR"

"""A file's word is not enough to import a module."""

import pytest

from geonpg.errors import Refused
from geonpg.scripts.runs.trust import check_import, env_arguments, recorded_env


def test_A5_a_module_must_be_named_by_the_user() -> None:
    check_import("Hopper-v4", [], "run")
    check_import("mine:Walk-v0", ["Hopper-v4", "mine:Walk-v0"], "run")
    with pytest.raises(Refused, match=r"run asks for the module 'mine', .* name it by --envs mine:Walk-v0"):
        check_import("mine:Walk-v0", ["Hopper-v4"], "run", "--envs")


def test_A5_what_the_user_names_must_be_what_the_file_says() -> None:
    assert recorded_env("Hopper-v4", None, "run") == recorded_env("Hopper-v4", "Hopper-v4", "run") == "Hopper-v4"
    assert recorded_env("mine:Walk-v0", "mine:Walk-v0", "run") == "mine:Walk-v0"
    with pytest.raises(Refused, match="run is of Hopper-v4: --env must say the same, not Walker2d-v4"):
        recorded_env("Hopper-v4", "Walker2d-v4", "run")
    with pytest.raises(Refused, match="asks for the module 'mine'"):
        recorded_env("mine:Walk-v0", None, "run")


def test_commands_that_are_suggested_name_it() -> None:
    assert env_arguments("Hopper-v4") == []
    assert env_arguments("mine:Walk-v0") == ["--env", "mine:Walk-v0"]

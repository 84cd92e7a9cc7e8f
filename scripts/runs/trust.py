"""Environments named by files: importing their modules runs code, so the user must have named them too."""

from collections.abc import Collection

from geonpg.errors import require


def check_import(env_id: str, named: Collection[str], source: object, option: str = "--env") -> None:
    """Refuse to import the module of an id `module:Id` from a file unless the user has named that id."""
    module, colon, _ = env_id.partition(":")
    advice = f"if you trust it, name it by {option} {env_id}"
    require(not colon or env_id in named, f"{source} asks for the module {module!r}, whose import runs code: {advice}")


def recorded_env(env_id: str, named: str | None, source: object) -> str:
    """Return the environment id of a file; raise Refused if the user named another, or must name its module."""
    require(named in (None, env_id), f"{source} is of {env_id}: --env must say the same, not {named}")
    check_import(env_id, [named] if named else [], source)
    return env_id


def env_arguments(env_id: str) -> list[str]:
    """Return the arguments that a command needs beside a file of this environment, for `check_import`."""
    return ["--env", env_id] if ":" in env_id else []

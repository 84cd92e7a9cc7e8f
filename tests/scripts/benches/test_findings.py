"""How findings become the keys of `--json`."""

from geonpg.scripts.benches.findings import flat


def test_nested_names_are_joined() -> None:
    assert flat({"a": {"b": {"c": 1, "c/low": 0.5}, "d": True}, "e": 2}) == {
        "a/b/c": 1.0, "a/b/c/low": 0.5, "a/d": 1.0, "e": 2.0,
    }  # fmt: skip
    assert all(type(value) is float for value in flat({"a": {"b": 1}, "c": True}).values())

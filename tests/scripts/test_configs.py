"""`geonpg configs` lists and shows presets."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from geonpg.configs import FIELDS, Settings, help_of, legal_words, load, names, read, shown
from geonpg.scripts import cli, train


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["configs", *arguments]) == 0
    return capsys.readouterr().out


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(capsys, *arguments, "--json"))
    return found


def test_it_lists_presets_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys).splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[name, read(name).description] for name in names()]
    assert run_json(capsys) == {name: read(name).description for name in names()}


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("task", [[], ["--env", "HalfCheetah-v4"]], ids=["any", "HalfCheetah"])
def test_it_shows_the_values_that_load_gives(name: str, task: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    truth = load(name, *task[1:])
    printed = run(capsys, name, *task)
    assert read(name).description in printed.splitlines()[0]
    rows = {line.split()[0]: line for line in printed.splitlines() if line.split()[:1] and line.split()[0] in FIELDS}
    for key, value in asdict(truth).items():
        assert f" {shown(value)} " in rows[key]
        assert rows[key].endswith(f"  {help_of(key)}")
    settings = run_json(capsys, name, *task)["settings"]
    assert {key: s["value"] for key, s in settings.items()} == json.loads(json.dumps(asdict(truth)))


def test_it_says_where_a_value_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    settings = run_json(capsys, "paper-published", "--env", "Walker2d-v4")["settings"]
    expected = {
        "steps": "schema",
        "n_envs": "paper",
        "learning_rate": "paper, task Walker2d",
        "calibrate": "paper-published",
    }
    assert {key: settings[key]["from"] for key in expected} == expected
    assert settings["method"]["legal"] == "one of ng, mid, geo, geof"


def test_it_tells_which_tasks_have_values_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    end = run(capsys, "paper").split("\n\n")[-1].splitlines()
    assert end[0] == "Tasks with values of their own (--env ID shows all for one):"
    assert "paper, task Walker2d                learning_rate = 0.03" in end
    assert run(capsys, "paper", "--env", "CartPole-v1").endswith("\npaper has no values of its own for CartPole-v1\n")
    assert "of its own" not in run(capsys, "paper", "--env", "Walker2d-v4")


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("n_envs = 3")
    assert run_json(capsys, str(path))["settings"]["n_envs"] == {
        "value": 3,
        "from": str(path),
        "help": help_of("n_envs"),
        "legal": "an integer from 1 to 16,384",
    }
    assert run(capsys, str(path)).splitlines()[0] == str(path)


def test_C15_it_explains_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "--keys").splitlines()
    assert [line.split()[0] for line in lines[1 : len(FIELDS) + 1]] == list(FIELDS)
    keys = run_json(capsys, "--keys")
    defaults = json.loads(json.dumps(asdict(Settings())))
    for line, (key, default) in zip(lines[1:], defaults.items(), strict=False):
        assert keys[key] == {"default": default, "legal": legal_words(key), "help": FIELDS[key].metadata["help"]}
        assert line.endswith(f"  {FIELDS[key].metadata['help']}")
        assert f"  {legal_words(key)}  " in line
    assert "hidden                     64,64 " in run(capsys, "--keys")


def test_C15_the_help_of_train_sends_to_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train.main(["--help"])
    assert "`geonpg configs --keys` lists the keys" in " ".join(capsys.readouterr().out.split())


WRONG = {
    "default --keys": "--keys explains the keys of every preset: it takes no preset beside it",
    "papr": "unknown preset 'papr' (did you mean paper?): choose one of {names} or a path to a .toml file",
    "none.toml": "cannot read preset 'none.toml': No such file or directory",
    "--env Walker2d-v4": "--env needs a preset: choose one of {names} or a path to a .toml file",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_argument_is_one_sentence(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["configs", *arguments.split()])
    assert stopped.value.code == 2
    sentence = WRONG[arguments].format(names=", ".join(names()))
    assert capsys.readouterr().err == f"geonpg configs: {sentence}\n"

"""Presets are read in layers; what is wrong in one is refused with its file's name."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from geonpg.configs import (
    FIELDS,
    Settings,
    layers,
    load,
    load_recorded,
    names,
    parse_overrides,
    read,
    spelled,
    task_names,
    to_toml,
)
from geonpg.configs.presets import FAMILIES
from geonpg.envs import is_native
from geonpg.errors import Refused

KEYS = ", ".join(FIELDS)
FILE_KEYS = f"{KEYS}, description, extends, task"

# The paper's appendix: constant learning rates.
PAPER_RATES = {
    "HalfCheetah": 1.0,
    "Hopper": 0.03,
    "Reacher": 0.03,
    "Walker2d": 0.03,
    "InvertedPendulum": 0.3,
    "InvertedDoublePendulum": 0.01,
}


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", names())
def test_what_comes_with_the_package_loads_and_describes_itself(name: str) -> None:
    assert isinstance(load(name), Settings)
    assert read(name).description


def test_the_names_are_the_files() -> None:
    folder = Path(__file__).resolve().parents[2] / "configs"
    assert names() == sorted(path.stem for path in folder.glob("*.toml"))
    assert {"default", "paper", "paper-published"} <= set(names())


def test_default_says_only_what_differs_from_the_schema() -> None:
    preset, schema = read("default"), asdict(Settings())
    assert all(value != schema[key] for key, value in preset.values.items())


@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("task", PAPER_RATES)
def test_the_paper_has_a_rate_per_task(task: str, version: str) -> None:
    assert load("paper", f"{task}-{version}").learning_rate == PAPER_RATES[task]


def test_the_paper_as_published_differs_by_the_calibration_alone() -> None:
    paper = load("paper", "HalfCheetah-v4")
    assert paper.calibrate
    assert load("paper-published", "HalfCheetah-v4") == replace(paper, calibrate=False)
    assert (paper.n_envs, paper.n_steps) == (3, 1000)  # whole episodes, at least 2500 steps of them
    reacher, hopper = load("paper", "Reacher-v4"), load("paper", "Hopper-v4")
    assert (reacher.n_envs, reacher.n_steps) == (50, 50)
    assert hopper.n_envs * hopper.n_steps == 2500
    assert all((paper.unit_rows, paper.critic_extras, paper.limits_terminate))
    assert (paper.trust_region, paper.factored_damping) == ("solver", False)
    assert (paper.gae_lambda, paper.factor_averaging, paper.factors_every, paper.target_kl) == (0.97, 0.99, 2, 0.005)
    assert (paper.critic_updates, paper.critic_activation, paper.critic_lambda) == (50, "elu", 1.0)
    assert paper.advantage_floor == 0  # ours, for scaled rewards


def test_large_leaves_out_what_default_does_for_small_updates() -> None:
    elsewhere = load("large", "Ant-v4")
    assert load("large", "Humanoid-v4") == elsewhere
    assert {load("large", f"{task}-v4").log_std_init for task in ("Hopper", "Swimmer")} == {elsewhere.log_std_init}


def test_later_layers_win(tmp_path: Path) -> None:
    """Schema, what is extended with its tasks, the file, its task in any version, this version, overrides."""
    write(tmp_path / "base.toml", "n_envs = 2\nn_steps = 2\nframes = 2\n[task.Ant]\nn_steps = 3\nframes = 3")
    text = 'extends = "base.toml"\nframes = 4\n[task.Ant]\nsteps = 5\neval_every = 5\n[task."Ant-v5"]\neval_every = 6'
    child = write(tmp_path / "child.toml", text)
    settings = load(child, "Ant-v5", {"eval_episodes": 7})
    assert (settings.n_envs, settings.n_steps, settings.frames) == (2, 3, 4)
    assert (settings.steps, settings.eval_every, settings.eval_episodes) == (5, 6, 7)
    assert settings.gamma == Settings().gamma
    assert load(child, "Ant-v4").eval_every == 5
    assert load(child, "Ant").eval_every == 5
    for other in (None, "Ant-v4-noisy", "BigAnt-v5"):
        assert load(child, other).n_steps == 2
    base = str(tmp_path / "base.toml")
    sources = [base, f"{base}, task Ant", child, f"{child}, task Ant", f"{child}, task Ant-v5"]
    assert [layer.source for layer in layers(child, "Ant-v5")] == sources


def test_only_a_version_at_the_end_is_one() -> None:
    assert task_names("Walker2d-v4") == ["Walker2d", "Walker2d-v4"]
    assert task_names("Ant-v4-noisy") == ["Ant-v4-noisy"]
    assert task_names("lab/Ant-v12") == ["lab/Ant", "lab/Ant-v12"]


def test_a_file_extends_a_preset_by_name(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.toml", 'description = "mine"\nextends = "paper"\nn_envs = 5')
    assert load(mine, "HalfCheetah-v4") == replace(load("paper", "HalfCheetah-v4"), n_envs=5)


def extremes() -> list[Settings]:
    floats = Settings(learning_rate=1e300, target_kl=5e-324, damping=0.1 + 0.2, critic_learning_rate=1e16, clip=123)
    flags = {key: not value for key, value in asdict(Settings()).items() if isinstance(value, bool)}
    return [Settings(), floats, Settings(hidden=(), critic_hidden=(1, 2, 3), steps=10**11), Settings(**flags)]


@pytest.mark.parametrize("settings", [*extremes(), *(load(name, "Hopper-v5") for name in names())])
def test_toml_goes_out_and_comes_back(settings: Settings, tmp_path: Path) -> None:
    text = to_toml(settings)
    assert [line.partition(" = ")[0] for line in text.splitlines()] == list(FIELDS), "complete and flat"
    assert load(write(tmp_path / "run.toml", text), "Walker2d-v4") == settings


def test_overrides_are_read_by_the_type_of_their_key() -> None:
    given = ["hidden=64,32", "critic_hidden=", "calibrate=false", "ortho_init=True", "target_kl=1e-3", "method=ng"]
    given += [" n_envs = 1_000 ", "learning_rate=1", "n_steps=1", "n_steps=2"]
    assert parse_overrides(given) == {
        "hidden": (64, 32),
        "critic_hidden": (),
        "calibrate": False,
        "ortho_init": True,
        "target_kl": 1e-3,
        "method": "ng",
        "n_envs": 1000,
        "learning_rate": 1.0,
        "n_steps": 2,
    }
    assert parse_overrides([]) == {}


@pytest.mark.parametrize("key", FIELDS)
def test_every_default_can_be_given_as_text(key: str) -> None:
    default = getattr(Settings(), key)
    text = default if isinstance(default, str) else json.dumps(default).strip("[]")
    assert parse_overrides([f"{key}={text}"]) == {key: default}


WRONG_OVERRIDES = {
    "n_env=3": f"unknown key 'n_env' (did you mean n_envs?): choose one of {KEYS}",
    "xyzzy=3": f"unknown key 'xyzzy': choose one of {KEYS}",
    "description=x": f"unknown key 'description': choose one of {KEYS}",
    "=3": f"unknown key '': choose one of {KEYS}",
    "n_envs": "a setting is given as key=value, not 'n_envs'",
    "n_envs=many": "n_envs must be an integer from 1 to 16,384, not 'many'",
    "n_envs=2.5": "n_envs must be an integer from 1 to 16,384, not '2.5'",
    "n_envs=": "n_envs must be an integer from 1 to 16,384, not ''",
    "steps=-1": "steps must be an integer from 1 to 999,999,999,999, not -1",
    "gamma=high": "gamma must be a finite number in [0, 1], not 'high'",
    "gamma=nan": "gamma must be a finite number in [0, 1], not nan",
    "target_kl=inf": "target_kl must be a finite number above 0, not inf",
    "calibrate=1": "calibrate must be true or false, not '1'",
    "hidden=64x64": "hidden must be integers from 1 to 16,384, at most 64 of them, such as 64,64, not '64x64'",
    "hidden=64,": "hidden must be integers from 1 to 16,384, at most 64 of them, such as 64,64, not '64,'",
    "hidden=64,0": "hidden must be integers from 1 to 16,384, at most 64 of them, such as 64,64, not (64, 0)",
    "method=adam": "method must be one of ng, mid, geo, geof, not 'adam'",
}


@pytest.mark.parametrize("item", WRONG_OVERRIDES)
def test_a_wrong_override_is_refused_in_one_sentence(item: str) -> None:
    with pytest.raises(Refused, match=r".") as refused:
        parse_overrides([item])
    assert str(refused.value) == WRONG_OVERRIDES[item]


def test_overrides_from_python_are_refused_alike() -> None:
    with pytest.raises(Refused, match=r"^unknown key 'gama' \(did you mean gamma\?\): choose one of n_envs, "):
        load("default", overrides={"gama": 0.9})
    with pytest.raises(Refused, match=r"^gamma must be a finite number in \[0, 1\], not '0.9'$"):
        load("default", overrides={"gamma": "0.9"})


MISSPELT = "unknown task (did you mean Walker2d?): name one of your own in full"

WRONG_FILES = {
    "n_env = 3": f"unknown key 'n_env' (did you mean n_envs?): choose one of {FILE_KEYS}",
    "[tasks.Ant]\ngamma = 1": f"unknown key 'tasks' (did you mean task?): choose one of {FILE_KEYS}",
    "gamma = 2": "gamma must be a finite number in [0, 1], not 2",
    "n_envs = true": "n_envs must be an integer from 1 to 16,384, not True",
    "[task.Ant]\nn_env = 3": f"task Ant: unknown key 'n_env' (did you mean n_envs?): choose one of {KEYS}",
    "[task.Ant]\ngamma = 2": "task Ant: gamma must be a finite number in [0, 1], not 2",
    '[task.Ant]\nextends = "paper"': f"task Ant: unknown key 'extends': choose one of {KEYS}",
    "[task.walker2d]": f"task walker2d: {MISSPELT}, as walker2d-v0",
    "[task.Waker2d]": f"task Waker2d: {MISSPELT}, as Waker2d-v0",
    '[task."walker2d-v4"]': "task walker2d-v4: unknown task (did you mean Walker2d-v4?)",
    "task = 3": "task must be tables such as [task.Walker2d]",
    "[task]\ngamma = 0.9": "task must be tables such as [task.Walker2d]",
    "description = 3": "description must be one line of text, not 3",
    'description = "two\\nlines"': "description must be one line of text, not 'two\\nlines'",
    "extends = 3": "extends must be one line of text, not 3",
    "gamma = ": "Invalid value (at end of document)",
}


@pytest.mark.parametrize("text", WRONG_FILES)
def test_a_wrong_file_is_refused_by_name(text: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml", text)
    with pytest.raises(Refused, match=r".") as refused:
        load(path)  # a task's table is refused even if another task, or none, is asked for
    assert str(refused.value) == f"{path}: {WRONG_FILES[text]}"
    assert str(refused.value).isprintable(), "one line"


DEEP = {
    "lists": f"hidden = {'[' * 3000}{']' * 3000}",
    "tables": f"hidden = {'{a = ' * 3000}1{'}' * 3000}",
    "keys": f"hidden{'.a' * 3000} = 1",
    "names": f"[task.Ant{'.a' * 3000}]",
}


@pytest.mark.parametrize("kind", DEEP)
def test_B7_what_is_nested_too_deeply_is_one_sentence(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml", DEEP[kind])
    with pytest.raises(Refused, match=r".") as refused:
        load(path)
    assert str(refused.value) == f"{path}: tables and lists may be nested 10 levels deep, not more"


def test_tasks_of_ones_own_may_have_any_other_name(tmp_path: Path) -> None:
    for name in ("lab/Ant", "CartPole", "Pendulum", "AntMaze", "Walker3d-v0"):
        path = write(tmp_path / "mine.toml", f'[task."{name}"]\nn_steps = 3')
        assert load(path, name).n_steps == 3


def test_the_families_are_those_that_run_natively() -> None:
    native = {task_names(env_id)[0] for env_id in gymnasium.registry if is_native(env_id)}
    assert set(FAMILIES) == native


def test_unknown_presets_and_unreadable_files(tmp_path: Path) -> None:
    known = f"choose one of {', '.join(names())} or a path to a .toml file"
    path = str(tmp_path / "mine.toml")
    wrong = {
        "papr": f"unknown preset 'papr' (did you mean paper?): {known}",
        "../paper": f"unknown preset '../paper' (did you mean paper?): {known}",
        "": f"unknown preset '': {known}",
        path: f"cannot read preset {path!r}: No such file or directory",
    }
    for preset, sentence in wrong.items():
        with pytest.raises(Refused, match=r".") as refused:
            load(preset)
        assert str(refused.value) == sentence
    Path(path).write_bytes(b"\xff\xfe")
    with pytest.raises(Refused, match=r"cannot read preset .*mine.toml': it is not UTF-8 text$"):
        load(path)
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(Refused, match=r"cannot read preset .*folder.toml': Is a directory$"):
        load(str(tmp_path / "folder.toml"))


def test_what_is_extended_must_exist_and_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = write(tmp_path / "orphan.toml", 'extends = "papr"')
    with pytest.raises(Refused, match=r"orphan.toml: unknown preset 'papr' \(did you mean paper\?\): choose one of"):
        load(orphan)
    write(tmp_path / "a.toml", 'extends = "b.toml"')
    write(tmp_path / "b.toml", 'extends = "../' + tmp_path.name + '/a.toml"')
    monkeypatch.chdir(tmp_path)
    for start in ("a.toml", "b.toml", str(tmp_path / "a.toml")):
        with pytest.raises(Refused, match=r"[ab].toml: extends goes in a circle through '.*[ab].toml'$"):
            load(start)


@pytest.mark.parametrize("text", ["1000000", "1_000_000", "1e6", "1.0E6"])
def test_C13_a_whole_number_may_be_written_as_one_likes(text: str, tmp_path: Path) -> None:
    assert parse_overrides([f"steps={text}", "hidden=1e2,64"]) == {"steps": 1_000_000, "hidden": (100, 64)}
    (tmp_path / "mine.toml").write_text(f"steps = {text}\nhidden = [1e2, 64]\n")
    settings = load(str(tmp_path / "mine.toml"))
    assert (settings.steps, type(settings.steps), settings.hidden) == (1_000_000, int, (100, 64))
    for wrong in ("1.5e0", "1e400", "nan"):
        with pytest.raises(Refused, match=f"^steps must be an integer .*, not '{wrong}'$"):
            parse_overrides([f"steps={wrong}"])


def test_C12_a_byte_order_mark_is_no_part_of_a_preset(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("gamma = 0.5\n", encoding="utf-8-sig")
    assert load(str(tmp_path / "mine.toml")).gamma == 0.5


@pytest.mark.parametrize("value", [True, 3, 0.5, "geo", (64, 32), ()])
def test_a_value_is_spelled_as_it_is_read(value: Any) -> None:
    key = {bool: "calibrate", int: "n_envs", float: "gamma", str: "method", tuple: "hidden"}[type(value)]
    assert parse_overrides([f"{key}={spelled(value)}"]) == {key: value}


def test_a_recorded_run_without_a_setting_did_what_was_done_before_it(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("gamma = 0.9\n")
    assert (load_recorded(str(path)).cautious, load(str(path)).cautious) == (False, True)
    assert (load_recorded(str(path)).curvature_every, load(str(path)).curvature_every) == (1, 4)
    path.write_text("cautious = true\n")
    assert load_recorded(str(path)).cautious

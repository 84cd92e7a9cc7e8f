"""From a race's file or flags to its entries."""

from pathlib import Path
from typing import Any

import pytest
from tiny_races import write_entry

from geonpg.errors import Refused
from geonpg.scripts import race
from geonpg.scripts.races import contestants
from geonpg.scripts.races.contestants import CONTESTANTS, RLTOOLS, config_of
from geonpg.scripts.races.course import Entry, check_recorded, entries_of, groups_of, on_this_machine
from geonpg.scripts.races.rows import Row, begin, machine, read_facts, write_facts, write_rows

ROOT = Path(__file__).resolve().parents[3]
GROUP = {"contestants": ["geonpg", "ppo"], "envs": ["Hopper-v4"], "seeds": [0], "minutes": 5}


def changed(**values: Any) -> dict[str, Any]:
    return {**GROUP, **values}


@pytest.fixture(autouse=True)
def _everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All contestants are installed."""
    monkeypatch.setattr(contestants, "is_there", lambda project: True)


def test_entries_come_task_by_task_and_each_once() -> None:
    groups = [changed(seeds=[1, 0]), changed(contestants=["ppo"], envs=["Hopper-v4", "Reacher-v4"])]
    assert [(entry.env_id, entry.contestant, entry.seed) for entry in entries_of(groups, [])] == [
        ("Hopper-v4", "geonpg", 1),
        ("Hopper-v4", "geonpg", 0),
        ("Hopper-v4", "ppo", 1),
        ("Hopper-v4", "ppo", 0),
        ("Reacher-v4", "ppo", 0),
    ]


def test_flags_say_what_a_file_says() -> None:
    flags = ["--envs=Hopper-v4", "--contestants=geonpg,ppo", "--seeds=0-1", "--minutes=0.5"]
    assert groups_of(race.parse(flags)) == [changed(seeds=[0, 1], minutes=0.5)]


def test_the_races_of_the_project_are_legal() -> None:
    """Five minutes on four tasks, ours with three seeds; half an hour on one."""
    entries = entries_of(groups_of(race.parse([str(ROOT / "results/race.toml")])), [])
    five = [entry for entry in entries if entry.minutes == 5]
    assert {entry.env_id for entry in five} == {"HalfCheetah-v4", "Walker2d-v4", "Hopper-v4", "Ant-v4"}
    assert {entry.contestant for entry in five} == set(CONTESTANTS)
    assert len(five) == 4 * (3 + 6)
    half_hour = [entry for entry in entries if entry.minutes == 30]
    assert {(entry.env_id, entry.contestant) for entry in half_hour} == {
        ("HalfCheetah-v4", name) for name in ("geonpg", "sac", "sbx-sac")
    }
    assert len(entries) == len(five) + len(half_hour)


def test_everyone_who_can_races_if_nobody_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(contestants, "is_there", lambda project: project != "rltools")
    group = {"envs": ["Hopper-v4", "CartPole-v1"], "seeds": [0, 1], "minutes": 1.5}
    entries = entries_of([group], [])
    assert {entry.contestant for entry in entries if entry.env_id == "Hopper-v4"} == {*CONTESTANTS} - {RLTOOLS}
    assert {entry.contestant for entry in entries if entry.env_id == "CartPole-v1"} == {"geonpg", "ppo", "trpo"}
    first, *others = capsys.readouterr().err.splitlines()
    assert first == 'rltools-ppo is left out: it needs rltools (pip install "geonpg[race]")'
    for name, line in zip(("sac", "tqc", "sbx-sac"), others, strict=True):
        assert line.startswith(f"{name} is left out: on CartPole-v1, its actions must be continuous")


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (changed(minutes=0), "minutes must be a number above 0"),
        (changed(minutes=float("nan")), "minutes must be a number above 0"),
        (changed(minutes="5"), "minutes must be a number above 0"),
        (changed(seeds=[-1]), "seeds must be a list"),
        (changed(envs=[]), "envs must be a list"),
        (changed(envs=["Hoppper-v4"]), "unknown environment 'Hoppper-v4'"),
        (changed(contestants=["ppo", "a2c"]), "unknown contestant 'a2c'"),
        (changed(contestants=["sac"], envs=["CartPole-v1"]), "sac cannot race: on CartPole-v1, its actions must be"),
        (changed(methods=["geo"]), "unknown key 'methods'"),
        (changed(envs=["mymodule:Own-v0"]), "name it by --envs mymodule:Own-v0"),
    ],
)
def test_what_cannot_be_raced_is_refused(group: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        entries_of([group], [])


def test_a_contestant_that_was_asked_for_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "is_there", lambda project: project != "sb3-contrib")
    with pytest.raises(Refused, match=r'tqc cannot race: it needs sb3-contrib \(pip install "geonpg\[race\]"\)'):
        entries_of([changed(contestants=["geonpg", "tqc"])], [])


def test_no_folder_looks_like_a_run_of_compare(tmp_path: Path) -> None:
    """Or `geonpg report` would take it for one."""
    from geonpg.scripts.reports.reading import run_folders

    write_entry(tmp_path / "race", Entry("Hopper-v4", "ppo", 0, 5.0), {5.0: 1.0})
    assert list(run_folders(tmp_path)) == []


def test_an_entry_with_other_settings_is_refused(tmp_path: Path) -> None:
    entry = Entry("Hopper-v4", "geonpg", 0, 5.0)
    check_recorded(entry, tmp_path)
    facts = {"env": "Hopper-v4", "contestant": "geonpg", "seed": 0, "minutes": 5.0, "machine": "one"}
    begin(tmp_path / entry.name, {**facts, "config": {**config_of("geonpg", "Hopper-v4"), "gamma": 0.5}})
    check_recorded(entry, tmp_path)  # it has not ended
    for config, is_same in ((config_of("geonpg", "Hopper-v4"), True), ({"gamma": 0.5}, False)):
        begin(tmp_path / entry.name, {**facts, "config": {**config_of("geonpg", "Hopper-v4"), **config}})
        write_rows(tmp_path / entry.name, [Row(5.0, 300.0, 10, 1.0, 1.0, 20)])
        if is_same:
            check_recorded(entry, tmp_path)
    with pytest.raises(Refused, match=r"made with other settings, gamma \(0.5 and 0.995\): move it away"):
        check_recorded(entry, tmp_path)


def test_tasks_whose_ids_share_a_folder_are_told_apart(tmp_path: Path) -> None:
    """`my/Own-v0` and `my-Own-v0`: neither is taken for the other."""
    with_slash, with_dash = (Entry(env_id, "sac", 0, 5.0) for env_id in ("my/Own-v0", "my-Own-v0"))
    assert with_slash.name == with_dash.name
    folder = write_entry(tmp_path, with_slash, {5.0: 1.0})
    write_facts(folder, {**read_facts(folder), "config": config_of("sac", "my/Own-v0")})
    check_recorded(with_slash, tmp_path)
    with pytest.raises(Refused, match=r"made with other settings, env \('my/Own-v0' and 'my-Own-v0'\)"):
        check_recorded(with_dash, tmp_path)


def test_the_rest_of_a_race_that_was_begun_on_another_machine_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hopper, reacher = ([Entry(env_id, "ppo", seed, 5.0) for seed in (0, 1)] for env_id in ("Hopper-v4", "Reacher-v4"))
    longer = Entry("Hopper-v4", "ppo", 0, 10.0)
    write_entry(tmp_path, hopper[0], {5.0: 1.0}, "another, 64 cores")
    write_entry(tmp_path, reacher[0], {5.0: 1.0}, machine())
    write_entry(tmp_path, longer, {5.0: 1.0}, "another, 64 cores")  # it has not ended, and begins anew anyway
    left = on_this_machine([*hopper, *reacher, longer], tmp_path)
    assert left == [hopper[0], *reacher, longer]
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("the rest of Hopper-v4, 5 minutes, is left out: it was begun on another, 64 cores, and this")
    asked = [Entry("Hopper-v4", "sac", 0, 5.0), hopper[1]]  # neither of them was raced there, but others were
    assert on_this_machine(asked, tmp_path) == []

"""Tables and numbers of races whose returns are known."""

import shutil
from pathlib import Path

import pytest
from tiny_races import write_entry, write_races

from geonpg.errors import Refused
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.intervals import student
from geonpg.scripts.races.analysis import RaceStudy, race_numbers, race_tables, read_races
from geonpg.scripts.races.course import Entry
from geonpg.scripts.races.rows import FACTS, read_facts, write_facts


@pytest.fixture
def study(tmp_path: Path) -> RaceStudy:
    write_races(tmp_path)
    return read_races(tmp_path)


def column(table: Table, name: str, *row: str) -> object:
    (found,) = (cells for cells in table.rows if tuple(cells[: len(row)]) == row)
    return found[list(table.columns).index(name)]


def test_entries_that_have_not_ended_are_left_out(study: RaceStudy, tmp_path: Path) -> None:
    assert study.contestants == ["geonpg", "sac"]
    assert [(race.env_id, race.minutes) for race in study.races] == [
        ("HalfCheetah-v4", 5),
        ("Hopper-v4", 5),
        ("HalfCheetah-v4", 10),
    ]
    assert not read_races(tmp_path / "nowhere")


def test_numbers_are_means_over_seeds_with_their_intervals(study: RaceStudy) -> None:
    numbers, key = race_numbers(study), "race/HalfCheetah-v4/geonpg"
    expected = student(study.races[0].curve("geonpg")[1][:, 0])
    assert numbers[f"{key}/1"] == 2100
    assert (numbers[f"{key}/1/low"], numbers[f"{key}/1/high"]) == (expected.low, expected.high)
    assert numbers[f"{key}/5"] == 4100
    assert "race/HalfCheetah-v4/sac/1/low" not in numbers, "one seed has no interval"


def test_a_minute_is_told_of_the_shortest_race_that_has_it(study: RaceStudy) -> None:
    numbers = race_numbers(study)
    assert numbers["race/HalfCheetah-v4/sac/5"] == 3900
    assert numbers["race/HalfCheetah-v4/sac/10"] == 8000
    assert numbers["race/HalfCheetah-v4/sac/minutes_to/1000"] == 2
    assert numbers["race/HalfCheetah-v4/sac/minutes_to/7000"] == 10


def test_an_interval_is_of_the_race_that_its_mean_is_of(study: RaceStudy, tmp_path: Path) -> None:
    for seed in (1, 2):
        write_entry(tmp_path, Entry("HalfCheetah-v4", "sac", seed, 10.0), dict.fromkeys((1.0, 2.0, 5.0, 10.0), 7.0))
    numbers, key = race_numbers(read_races(tmp_path)), "race/HalfCheetah-v4/sac"
    assert f"{key}/10/low" in numbers
    assert f"{key}/5/low" not in numbers


def test_an_entry_that_was_evaluated_after_other_minutes_is_refused(tmp_path: Path) -> None:
    write_entry(tmp_path, Entry("Hopper-v4", "ppo", 0, 5.0), {1.0: 3.0, 5.0: 4.0})
    write_entry(tmp_path, Entry("Hopper-v4", "sac", 0, 5.0), {2.0: 3.0, 5.0: 4.0})
    with pytest.raises(Refused, match="evaluated after other minutes"):
        read_races(tmp_path)


def test_minutes_to_a_return_are_those_of_the_mean_over_seeds(study: RaceStudy) -> None:
    numbers, key = race_numbers(study), "race/HalfCheetah-v4/geonpg/minutes_to"
    assert {name: value for name, value in numbers.items() if name.startswith(key)} == {
        f"{key}/1000": 1,
        f"{key}/2000": 1,
        f"{key}/3000": 2,
    }


def test_tables_say_who_was_first_and_when_returns_were_reached(study: RaceStudy) -> None:
    five, to, ten, _ = race_tables(study)
    assert (five.title, ten.title) == ("A race of 5 minutes", "A race of 10 minutes")
    assert column(five, "first at", "HalfCheetah-v4", "geonpg") == "1, 2, 5"
    assert column(five, "first at", "Hopper-v4", "geonpg") == "1, 2"
    assert column(five, "first at", "Hopper-v4", "sac") == "5"
    assert column(five, "5 min", "Hopper-v4", "sac") == "3900"
    assert column(five, "1 min", "HalfCheetah-v4", "geonpg") == "2100 (829 to 3371)"
    assert column(five, "seeds", "HalfCheetah-v4", "geonpg") == "2"
    assert "a machine, 2 cores" in five.note
    assert (column(to, "geonpg", "HalfCheetah-v4", "3000"), column(to, "sac", "HalfCheetah-v4", "3000")) == ("2", "5")
    assert ("HalfCheetah-v4", "5000") not in {tuple(row[:2]) for row in to.rows}, "nobody reached it"


def test_equals_are_first_together(tmp_path: Path) -> None:
    for contestant in ("geonpg", "ppo", "sac"):
        mean = 1000.0 if contestant != "ppo" else 999.0
        write_entry(tmp_path, Entry("InvertedPendulum-v4", contestant, 0, 1.0), {1.0: mean})
    assert read_races(tmp_path).races[0].first(1.0) == ["geonpg", "sac"]


def test_a_task_of_ones_own_has_round_returns_to_reach(tmp_path: Path) -> None:
    write_entry(tmp_path, Entry("mine:Own-v0", "ppo", 0, 2.0), {1.0: -97.0, 2.0: 13.0})
    (race,) = read_races(tmp_path).races
    assert race.levels
    assert all(level % 5 == 0 and -97 < level <= 13 for level in race.levels)
    assert race.minutes_to("ppo", race.levels[0]) == 2


def test_a_longer_race_does_not_contradict_a_shorter_one(tmp_path: Path) -> None:
    write_entry(tmp_path, Entry("Hopper-v4", "ppo", 0, 5.0), {1.0: 500.0, 5.0: 1500.0})
    write_entry(tmp_path, Entry("Hopper-v4", "ppo", 0, 10.0), {1.0: 500.0, 5.0: 2500.0, 10.0: 3500.0})
    numbers, key = race_numbers(read_races(tmp_path)), "race/Hopper-v4/ppo/minutes_to"
    assert numbers[f"{key}/1000"] == 5
    assert f"{key}/2000" not in numbers, "in the race of five minutes it was not reached by then"
    assert numbers[f"{key}/3000"] == 10


def test_remarks_tell_what_is_missing_or_mixed(study: RaceStudy, tmp_path: Path) -> None:
    assert study.remarks == [
        "Machine: a machine, 2 cores.",
        "Not ended, and not counted: HalfCheetah-v4/tqc/5min/seed-0.",
    ]
    for seed, others in ((3, 0.02), (4, 0.3)):
        folder = write_entry(tmp_path, Entry("Hopper-v4", "ppo", seed, 5.0), {1.0: 1.0, 2.0: 2.0, 5.0: 3.0})
        made = {"git": f"revision {seed}", "versions": {"torch": f"2.{seed}", "numpy": "2.4"}, "others": others}
        write_facts(folder, {**read_facts(folder), **made})
    assert read_races(tmp_path).remarks[1:4] == [
        "Made by 3 revisions of this program.",
        "Made with several versions of torch: 2.3, 2.4.",
        "Other programs used at most 0.30 of a core while an entry trained.",
    ]


def test_remarks_tell_which_task_was_raced_where(tmp_path: Path) -> None:
    for env_id, contestant, machine in (("Hopper-v4", "ppo", "A"), ("Hopper-v4", "sac", "A"), ("Ant-v4", "ppo", "B")):
        write_entry(tmp_path, Entry(env_id, contestant, 0, 5.0), {5.0: 3.0}, machine)
    assert read_races(tmp_path).remarks == ["Machines: Hopper-v4 on A; Ant-v4 on B."]
    write_entry(tmp_path, Entry("Ant-v4", "ppo", 0, 10.0), {5.0: 3.0, 10.0: 4.0}, "A")  # a race of its own
    assert read_races(tmp_path).remarks == ["Machines: Ant-v4, Hopper-v4 on A; Ant-v4 on B."]
    write_entry(tmp_path, Entry("Ant-v4", "sac", 0, 5.0), {5.0: 3.0}, "A")
    mixed = read_races(tmp_path)
    assert mixed.remarks[1:] == ["Raced on several, so that nobody can be compared, and left out: Ant-v4 (5 minutes)."]
    leaders = {(race.env_id, race.minutes): race.first(5.0) for race in mixed.races}
    assert leaders == {
        ("Ant-v4", 10.0): ["ppo"],
        ("Hopper-v4", 5.0): ["ppo", "sac"],
    }
    assert "race/Ant-v4/sac/5" not in race_numbers(mixed)


def test_a_contestant_of_another_version_is_named(tmp_path: Path) -> None:
    write_entry(tmp_path, Entry("Hopper-v4", "ars", 0, 5.0), {5.0: 3.0})
    with pytest.raises(Refused, match=r"Hopper-v4/ars/5min/seed-0/race.json: unknown contestant 'ars'"):
        read_races(tmp_path)


def test_a_copy_of_an_entry_is_no_further_seed(tmp_path: Path) -> None:
    folder = write_entry(tmp_path, Entry("Hopper-v4", "ppo", 0, 5.0), {1.0: 3.0, 5.0: 4.0})
    shutil.copytree(folder, folder.with_name("seed-0.old"))
    with pytest.raises(Refused, match="of the same seed as another entry"):
        read_races(tmp_path)


def test_an_entry_that_has_lost_its_facts_is_named(tmp_path: Path) -> None:
    folder = write_entry(tmp_path, Entry("Hopper-v4", "ppo", 0, 5.0), {5.0: 4.0})
    (folder / FACTS).unlink()
    assert read_races(tmp_path).remarks == ["Not ended, and not counted: Hopper-v4/ppo/5min/seed-0."]


def test_tasks_that_were_evaluated_after_other_minutes_share_a_table(tmp_path: Path) -> None:
    write_entry(tmp_path, Entry("Ant-v4", "ppo", 0, 5.0), {1.0: 3.0, 5.0: 4.0})
    write_entry(tmp_path, Entry("Hopper-v4", "ppo", 0, 5.0), {2.0: 6.0, 5.0: 7.0})
    (table,) = race_tables(read_races(tmp_path))
    assert list(table.columns) == ["task", "contestant", "1 min", "2 min", "5 min", "first at", "steps", "seeds"]
    shown = [[column(table, name, env_id) for name in table.columns[2:6]] for env_id in ("Ant-v4", "Hopper-v4")]
    assert shown == [["3.00", "", "4.00", "1, 5"], ["", "6.00", "7.00", "2, 5"]]


def test_where_nobody_reached_anything_there_is_no_table_of_it(tmp_path: Path) -> None:
    write_entry(tmp_path, Entry("HalfCheetah-v4", "ppo", 0, 1.0), {1.0: -100.0})
    assert [table.title for table in race_tables(read_races(tmp_path))] == ["A race of 1 minute"]

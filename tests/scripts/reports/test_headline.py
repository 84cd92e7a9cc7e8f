"""The picture of ours against PPO: drawn only where both have run in the study and in a race."""

from pathlib import Path

import numpy as np
from synthetic_studies import HIGH, LOW, write_group
from tiny_races import write_entry

from geonpg.scripts.races.course import Entry
from geonpg.scripts.reports.headline import NOTE, headline_figure, shared_races
from geonpg.scripts.reports.reporting import read_report

MINUTES = {0.5: 100.0, 1.0: 900.0, 5.0: 1500.0}
THEIRS = {minute: found / 3 for minute, found in MINUTES.items()}


def write_both(root: Path) -> None:
    """Ours and PPO: Hopper has everything, and a longer race; others lack a race, PPO's race, or runs."""
    for env_id in ("Hopper-v4", "Walker2d-v4", "HalfCheetah-v4"):
        write_group(root / f"study/{env_id}/default/geo", HIGH)
        write_group(root / f"study/{env_id}/ppo/zoo", LOW)
    for env_id in ("Hopper-v4", "Ant-v4"):
        write_entry(root / "race", Entry(env_id, "ppo", 0, 5.0), THEIRS)
        write_entry(root / "race", Entry(env_id, "geonpg", 0, 5.0), MINUTES)
    write_entry(root / "race", Entry("Hopper-v4", "geonpg", 1, 5.0), {m: r + 200 for m, r in MINUTES.items()})
    for contestant in ("geonpg", "ppo"):
        write_entry(root / "race", Entry("Hopper-v4", contestant, 0, 30.0), {30.0: 9999.0})
    write_entry(root / "race", Entry("Walker2d-v4", "geonpg", 0, 5.0), MINUTES)


def test_only_tasks_that_have_all_four_curves(tmp_path: Path) -> None:
    write_both(tmp_path)
    found = read_report(tmp_path)
    assert [(race.env_id, race.minutes) for race in shared_races(found.study, found.raced)] == [("Hopper-v4", 5.0)]
    assert "headline" in found.figures()
    assert NOTE in found.page()


def test_a_task_with_a_slash_has_it_in_races_and_not_in_folders(tmp_path: Path) -> None:
    write_group(tmp_path / "study/my-Walk-v0/default/geo", HIGH)
    write_group(tmp_path / "study/my-Walk-v0/ppo/zoo", LOW)
    for contestant in ("geonpg", "ppo"):
        write_entry(tmp_path / "race", Entry("my/Walk-v0", contestant, 0, 5.0), MINUTES)
    found = read_report(tmp_path)
    figure = headline_figure(found.study, found.raced)
    assert figure is not None
    assert figure.axes[0].get_title() == "my/Walk-v0"


def test_the_curves_are_those_of_the_study_and_of_the_race(tmp_path: Path) -> None:
    write_both(tmp_path)
    found = read_report(tmp_path)
    figure = headline_figure(found.study, found.raced)
    assert figure is not None
    by_steps, by_minutes = figure.axes
    assert by_steps.get_title() == "Hopper-v4"
    ends = [line.get_xydata()[-1] for line in by_steps.lines]
    assert np.allclose(ends, [[1.0, np.mean(HIGH)], [1.0, np.mean(LOW)]])
    ours, theirs = (line.get_xydata() for line in by_minutes.lines)
    assert np.array_equal(ours, [[minute, found + 100] for minute, found in MINUTES.items()])
    assert np.array_equal(theirs, list(THEIRS.items()))
    colours = [[line.get_color() for line in ax.lines] for ax in (by_steps, by_minutes)]
    assert colours[0] == colours[1]
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [
        "geo, ours (seeds: 5 above, 2 below)",
        "SB3's PPO, rl-zoo's settings (seeds: 5 above, 1 below)",
    ]


def test_nothing_is_drawn_without_a_race(tmp_path: Path) -> None:
    write_group(tmp_path / "study/Hopper-v4/default/geo", HIGH)
    write_group(tmp_path / "study/Hopper-v4/ppo/zoo", LOW)
    assert "headline" not in read_report(tmp_path).figures()

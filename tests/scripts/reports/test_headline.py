"""The picture of ours against PPO: drawn only where both have run in the study and in a race."""

from pathlib import Path

import numpy as np
from synthetic_studies import HIGH, LOW, write_group
from tiny_races import write_entry

from geonpg.scripts.races.course import Entry
from geonpg.scripts.reports.headline import headline_figure, shared_races
from geonpg.scripts.reports.reporting import read_report

MINUTES = {0.5: 100.0, 1.0: 900.0, 5.0: 1500.0}


def write_both(root: Path) -> None:
    """Ours and PPO on three tasks, of which one was not raced and one has no PPO in its race."""
    for env_id in ("Hopper-v4", "Walker2d-v4", "HalfCheetah-v4"):
        write_group(root / f"study/{env_id}/default/geo", HIGH)
        write_group(root / f"study/{env_id}/ppo/zoo", LOW)
    for entry in (Entry("Hopper-v4", "ppo", 0, 5.0), Entry("Hopper-v4", "geonpg", 0, 5.0)):
        write_entry(root / "race", entry, MINUTES)
    write_entry(root / "race", Entry("Hopper-v4", "geonpg", 1, 5.0), {m: r + 200 for m, r in MINUTES.items()})
    write_entry(root / "race", Entry("Walker2d-v4", "geonpg", 0, 5.0), MINUTES)


def test_only_tasks_that_have_all_four_curves(tmp_path: Path) -> None:
    write_both(tmp_path)
    found = read_report(tmp_path)
    assert [race.env_id for race in shared_races(found.study, found.raced)] == ["Hopper-v4"]
    assert "headline" in found.figures()


def test_the_curves_are_those_of_the_study_and_of_the_race(tmp_path: Path) -> None:
    write_both(tmp_path)
    found = read_report(tmp_path)
    figure = headline_figure(found.study, found.raced)
    assert figure is not None
    by_steps, by_minutes = figure.axes
    assert by_steps.get_title() == "Hopper-v4"
    ends = {line.get_label(): line.get_xydata()[-1] for line in by_steps.lines}
    assert np.allclose([end[0] for end in ends.values()], 1.0)
    assert np.allclose([end[1] for end in ends.values()], [np.mean(HIGH), np.mean(LOW)])
    curves = {line.get_label(): line.get_xydata() for line in by_minutes.lines}
    assert list(curves) == list(ends)
    assert np.array_equal(next(iter(curves.values())), [[m, r + 100] for m, r in MINUTES.items()])


def test_nothing_is_drawn_without_a_race(tmp_path: Path) -> None:
    write_group(tmp_path / "study/Hopper-v4/default/geo", HIGH)
    write_group(tmp_path / "study/Hopper-v4/ppo/zoo", LOW)
    assert "headline" not in read_report(tmp_path).figures()

"""Who is compared with whom, and after how many steps."""

from pathlib import Path

import pytest
from synthetic_studies import HIGH, LOW, write_group

from geonpg.scripts.reports.comparisons import over_others, over_reference
from geonpg.scripts.reports.reading import read_study


def test_methods_of_a_preset_are_compared_with_its_ng_and_the_main_preset_with_other_algorithms(tmp_path: Path) -> None:
    for name in ("default/ng", "default/geo", "paper/ng", "paper/geo", "paper/mid", "ppo/zoo"):
        write_group(tmp_path / "Hopper-v4" / name, LOW)
    study = read_study(tmp_path)
    assert list(map(str, over_reference(study))) == [
        "default/geo over default/ng",
        "paper/geo over paper/ng",
        "paper/mid over paper/ng",
    ]
    assert list(map(str, over_others(study))) == ["default/geo over ppo/zoo", "default/ng over ppo/zoo"]


def test_runs_of_different_lengths_are_compared_after_the_steps_that_both_have(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/default/geo", HIGH)
    write_group(tmp_path / "Hopper-v4/default/ng", LOW, steps=500_000)
    (comparison,) = over_reference(read_study(tmp_path))
    (pair,) = comparison.pairs.values()
    ours, theirs = pair.finals
    assert ours == pytest.approx(pair.ours.finals_at(500_000))
    assert (ours < pair.ours.finals).all()
    assert theirs.tolist() == LOW
    assert comparison.verdict() == pair.verdict() == "better"


def test_without_a_task_in_common_there_is_no_comparison(tmp_path: Path) -> None:
    write_group(tmp_path / "Hopper-v4/default/geo", HIGH)
    write_group(tmp_path / "Walker2d-v4/default/ng", LOW)
    assert over_reference(read_study(tmp_path)) == []

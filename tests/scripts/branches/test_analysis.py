"""An analysis that finds what is there."""

from pathlib import Path

import numpy as np
import pytest
from tiny_branches import branch_row

from geonpg.scripts.branches.analysis import ALL, CHECKPOINTS, branch_tables, difference, read_branches
from geonpg.scripts.branches.rows import BRANCH_RULES, write_rows
from geonpg.scripts.common.intervals import verdict


def test_a_difference_that_is_there_is_found_and_one_that_is_not_is_not(tmp_path: Path) -> None:
    """Checkpoints differ by thousands, the rules by a hundred: only pairs can see it."""
    rng = np.random.default_rng(0)
    shifts = {"ng": 0.0, "mid": 0.0, "geo": 100.0, "geof": -100.0, "geo-published": 0.0}
    for env_id in ("HalfCheetah-v4", "Hopper-v4"):
        (tmp_path / env_id).mkdir()
        rows = []
        for step in range(CHECKPOINTS.least):
            base = float(rng.uniform(0, 5000))
            rows += [branch_row(rule, base, shift + float(rng.normal(0, 20)), step) for rule, shift in shifts.items()]
        under_way = branch_row("ng", 0.0, 0.0, CHECKPOINTS.least)
        write_rows(tmp_path / env_id / "1000.csv", [*rows, under_way])
    study = read_branches(tmp_path)
    assert len(study["Hopper-v4"]["ng"]) == CHECKPOINTS.least
    found = difference(study, "geo", "score", "Hopper-v4")
    assert found.low < 100 < found.high
    assert found.high - found.low < 50
    spans = {"HalfCheetah-v4": 2160 + 260, "Hopper-v4": 2640 - 19.5}
    means = [float(difference(study, "geo", "score", env_id).value) / span for env_id, span in spans.items()]
    assert float(difference(study, "geo", "score", ALL).value) == pytest.approx(np.mean(means))
    by_name = {table.name: table for table in branch_tables(study)}
    verdicts = {(row[0], row[1]): row[2] for row in by_name["score"].rows}
    for place in (ALL, "HalfCheetah-v4", "Hopper-v4"):
        assert verdicts[place, "geo"] == "better"
        assert verdicts[place, "geof"] == "worse"
        assert verdicts[place, "mid"] == "not significant"
    misses = {(row[0], row[1]): row[2] for row in by_name["kl_miss"].rows}
    assert misses[ALL, "geo"] == "worse"
    assert verdict(found, CHECKPOINTS.least, CHECKPOINTS, good=0) == "higher"


def test_the_state_of_a_trunk_is_not_taken_for_a_result(tmp_path: Path) -> None:
    (tmp_path / "Reacher-v4").mkdir()
    (tmp_path / "Reacher-v4" / "1000.state").write_bytes(b"any")
    assert not read_branches(tmp_path)


def test_only_checkpoints_at_which_every_rule_was_tried_count(tmp_path: Path) -> None:
    rows = [branch_row(rule, 100.0, 0.0, step) for step in range(2) for rule in BRANCH_RULES]
    (tmp_path / "Reacher-v4").mkdir()
    write_rows(tmp_path / "Reacher-v4/1000.csv", rows[:-1])
    study = read_branches(tmp_path)
    assert {rule: len(found) for rule, found in study["Reacher-v4"].items()} == dict.fromkeys(BRANCH_RULES, 1)

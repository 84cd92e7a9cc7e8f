"""Trunks: pairs that are pairs, and rows that survive a stop."""

from pathlib import Path

import pytest
from tiny_branches import TINY, write_design

from geonpg.agents.checkpoint import read
from geonpg.agents.state import set_state
from geonpg.agents.stepping import Stepper
from geonpg.scripts.branches.design import DESIGN, design_of
from geonpg.scripts.branches.rows import BRANCH_RULES, read_rows, rows_path
from geonpg.scripts.branches.trunk import TRUNK, RuleAgents, grow, train_trunk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_design(tmp_path)


def test_every_rule_begins_at_the_same_point_whoever_was_before(folder: Path) -> None:
    """Branching changes neither the checkpoint nor the trunk, and the ng branch is the trunk's own future."""
    agents = RuleAgents(design_of(folder), "Reacher-v4", 1000)
    kept = folder / "kept.state"
    train_trunk(agents.steppers[TRUNK], 512, kept, lambda: False)
    unseen = agents.unseen(kept, 1)
    first = agents.branch("geo", kept, unseen, 1)
    reference = agents.branch("ng", kept, unseen, 1)
    assert agents.branch("geo", kept, unseen, 1) == first
    assert reference.score != first.score
    assert reference.steps == first.steps == 512
    future = agents.agent("ng")
    stepper = Stepper(future, 4000)
    set_state(future, read(kept))
    for _ in range(TINY["updates"]):
        stepper.step()
    assert unseen.gain(future) == reference.surrogate


def test_a_stopped_trunk_goes_on_as_if_nothing_had_been(folder: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / DESIGN).write_text((folder / DESIGN).read_text())
    assert grow(whole, "Reacher-v4", 1000, lambda: False)
    looks = iter(range(1000))
    for patience in (3, 8, 6, 7):  # stopped in the trunk, and between branches
        end = next(looks) + patience
        grow(folder, "Reacher-v4", 1000, lambda end=end: next(looks) > end)
    assert grow(folder, "Reacher-v4", 1000, lambda: False)
    assert rows_path(folder, "Reacher-v4", 1000).read_text() == rows_path(whole, "Reacher-v4", 1000).read_text()
    assert not list(folder.glob("*/*.state"))
    rows = read_rows(rows_path(folder, "Reacher-v4", 1000))
    assert [row.rule for row in rows] == 2 * list(BRANCH_RULES)
    assert [row.steps for row in rows] == 5 * [512] + 5 * [1024]

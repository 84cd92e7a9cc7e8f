"""Groups of seeds, and the numbers that are compared."""

from pathlib import Path

import numpy as np
import pytest
from synthetic_studies import write_group

from geonpg.scripts.reports.reading import read_study
from geonpg.scripts.reports.recorded_run import Contender, GroupName
from geonpg.scripts.reports.study import SeedGroup, Study

GEO = GroupName("Hopper-v4", Contender("default", "geo"))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    write_group(tmp_path / "Hopper-v4/default/geo", [2000])
    write_group(tmp_path / "Hopper-v4/ppo/zoo", [500, 600])
    write_group(tmp_path / "Walker2d-v4/ppo/zoo", [700])
    return read_study(tmp_path)


@pytest.fixture
def group(study: Study) -> SeedGroup:
    return study.groups[GEO]


def test_evaluations_on_the_way(group: SeedGroup) -> None:
    at_half = group.finals_at(500_000)
    assert at_half == pytest.approx(group.runs[0].evaluation.at(np.array([500_000.0])))
    assert at_half < group.finals
    assert group.finals_at(1_000_000) == group.finals == group.finals_at(2_000_000)


def test_returns_before_the_first_episode_are_unknown(group: SeedGroup) -> None:
    training = group.runs[0].training
    assert np.isnan(training.at(np.array([150_000.0])))
    assert np.isfinite(training.at(np.array([200_000.0])))


def test_groups_by_contender_and_by_task(study: Study) -> None:
    zoo = Contender("ppo", "zoo")
    assert study.contenders == [GEO.contender, zoo]
    assert study.other_algorithms == [zoo]
    assert {env_id: group.seeds for env_id, group in study.groups_of(zoo).items()} == {"Hopper-v4": 2, "Walker2d-v4": 1}
    assert [group.name.contender for group in study.groups_on("Walker2d-v4", study.contenders)] == [zoo]

"""The numbers of an update: where they come from, and the keys that they are logged under."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.logger import Logger
from toy_envs import make_world, small

from geonpg.agents import ACKTR
from geonpg.agents.update_stats import UpdateStats
from geonpg.kfac import Report

STATS = UpdateStats(
    n_updates=3, policy_loss=0.5, value_loss=2.0, entropy=1.5, explained_variance=0.25, rejected=1, std=0.5,
    report=Report(accepted=True, predicted_kl=0.002, actual_kl=0.003),
)  # fmt: skip


def recorded(stats: UpdateStats) -> dict[str, Any]:
    logger = Logger(folder=None, output_formats=[])
    stats.record(logger)
    return dict(logger.name_to_value)


def test_numbers_are_recorded_under_sb3s_keys() -> None:
    logged = recorded(STATS)
    assert {key: logged[key] for key in logged if key.startswith("train/")} == {
        "train/n_updates": 3, "train/explained_variance": 0.25, "train/entropy_loss": -1.5, "train/policy_loss": 0.5,
        "train/value_loss": 2.0, "train/approx_kl": 0.003, "train/rejected": 1, "train/std": 0.5,
    }  # fmt: skip
    assert logged["geometry/actual_over_predicted_kl"] == pytest.approx(1.5)
    assert "geometry/kappa" not in logged, "which this rule does not measure"


def test_what_does_not_exist_is_not_recorded() -> None:
    logged = recorded(replace(STATS, std=None, report=Report()))
    assert "train/std" not in logged
    assert "geometry/actual_over_predicted_kl" not in logged
    assert math.isnan(logged["train/approx_kl"])


@pytest.mark.parametrize("actions", ["Box", "Discrete"])
def test_an_agent_keeps_those_of_its_last_update(actions: str, tmp_path: Path) -> None:
    agent = ACKTR("MlpPolicy", make_world(actions=actions), n_steps=12, policy_kwargs=small(""), seed=0)
    assert agent.last_update is None
    agent.learn(2 * 36)
    stats, buffer = agent.last_update, agent.rollout_buffer
    assert stats is not None
    assert stats.n_updates == agent.optimizer.steps == 2
    assert stats.report is agent.optimizer.report
    errors = buffer.returns - buffer.values
    assert stats.explained_variance == pytest.approx(1 - np.var(errors) / np.var(buffer.returns), abs=1e-5)
    assert stats.value_loss == pytest.approx(float(np.mean(errors**2)), rel=1e-4)
    assert (stats.std is None) == (actions == "Discrete")
    agent.save(tmp_path / "agent")
    assert ACKTR.load(tmp_path / "agent").last_update is None

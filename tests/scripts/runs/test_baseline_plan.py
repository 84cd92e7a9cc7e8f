"""Baselines are SB3's own algorithms, unchanged by what we put around them."""

from pathlib import Path
from typing import Any

import pytest
from stable_baselines3 import A2C, PPO
from torch import nn

from geonpg.envs import make_vec
from geonpg.errors import Refused
from geonpg.kfac import ALONE, Ranks
from geonpg.scripts.runs.baseline_plan import BaselinePlan, config_of
from geonpg.scripts.runs.building import normalization_of
from geonpg.scripts.runs.run import Run

PENDULUM = "InvertedPendulum-v4"


def test_it_learns_what_the_algorithm_learns_on_its_own(tmp_path: Path) -> None:
    """Evaluations and checkpoints change nothing: SB3's class, called plainly, ends with the same numbers."""
    config = config_of("ppo", "default", PENDULUM, {"steps": 256, "eval_every": 128, "eval_episodes": 2})
    ours = Run.begin(BaselinePlan.of_config(PENDULUM, 3, {**config, "n_steps": 64}), tmp_path / "run")
    ours.train(lambda: False)
    plain = PPO("MlpPolicy", make_vec(PENDULUM, 1, seed=3), n_steps=64, seed=3, device="cpu").learn(256)
    found, expected = (each.policy.state_dict() for each in (ours.agent, plain))
    assert {name: v.tolist() for name, v in found.items()} == {name: v.tolist() for name, v in expected.items()}


def test_defaults_are_those_of_the_constructor() -> None:
    config = config_of("a2c", "default", PENDULUM, {})
    plain, (env, agent) = A2C("MlpPolicy", make_vec(PENDULUM)), BaselinePlan.of_config(PENDULUM, 0, config).make(ALONE)
    for key in ("n_steps", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "normalize_advantage"):
        assert config[key] == getattr(plain, key) == getattr(agent, key)
    assert env.num_envs == 1
    assert normalization_of(env) is None
    assert "method" not in config  # which says that a run is one of ours


def test_tuned_settings_reach_the_agent() -> None:
    agent: Any
    env, agent = BaselinePlan.of_config("Hopper-v4", 0, config_of("ppo", "zoo", "Hopper-v4", {})).make(ALONE)
    assert (agent.n_steps, agent.batch_size, agent.n_epochs, agent.gamma) == (512, 32, 5, 0.999)
    layers = [module for module in agent.policy.mlp_extractor.policy_net if isinstance(module, nn.Linear)]
    assert [layer.out_features for layer in layers] == [256, 256]
    assert isinstance(agent.policy.mlp_extractor.value_net[1], nn.ReLU)
    assert agent.policy.log_std[0] == -2
    normalization = normalization_of(env)
    assert normalization is not None
    assert normalization.gamma == 0.999


def test_what_only_races_train_is_refused() -> None:
    with pytest.raises(Refused, match=r"unknown algorithm 'sac'.*: choose one of ppo, a2c, trpo"):
        config_of("sac", "default", PENDULUM, {})


def test_several_processes_are_refused() -> None:
    ranks = Ranks()
    ranks.size = 2
    with pytest.raises(Refused, match="a baseline is trained by one process, not by 2"):
        BaselinePlan.of_config(PENDULUM, 0, config_of("a2c", "default", PENDULUM, {})).make(ranks)

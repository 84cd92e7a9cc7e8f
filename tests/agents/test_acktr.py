"""ACKTR against SB3's contract and against what its update promises."""

import copy
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from geonpg.agents import ACKTR
from geonpg.agents.stepping import Stepper
from geonpg.configs import FIELDS, Settings, load
from geonpg.envs import Normalize, make_vec
from geonpg.kfac import RULES
from geonpg.scripts.runs.building import make_agent

METHODS = ("ng", "mid", "geo", "geof")


class Choices(gymnasium.Env[Any, Any]):
    """Any action space: the reward is the mean of the action's components."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = action_space
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        observation = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return observation, float(np.mean(action)), self.steps >= 20, False, {}


SPACES = {
    "Box": spaces.Box(-1, 1, (2,), np.float32),
    "Discrete": spaces.Discrete(4),
    "MultiDiscrete": spaces.MultiDiscrete([2, 5]),
    "MultiBinary": spaces.MultiBinary(3),
}


def parameters(agent: ACKTR) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in agent.policy.parameters()])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", SPACES)
def test_every_method_improves_every_kind_of_action(kind: str, method: str) -> None:
    env = make_vec_env(lambda: Choices(SPACES[kind]), 4, seed=0)
    quick = {"n_steps": 32, "target_kl": 0.04, "anneal": False, "policy_kwargs": {"net_arch": [16]}}
    agent = ACKTR("MlpPolicy", env, method=method, seed=0, **quick)
    before = evaluate_policy(agent, env, 20)[0]
    agent.learn(2560)
    assert evaluate_policy(agent, env, 20)[0] > before + 4
    assert agent.optimizer.rejected == 0


def test_the_methods_are_the_rules_of_the_library() -> None:
    assert set(METHODS) <= set(RULES)
    with pytest.raises(ValueError, match="unknown rule 'sgd': choose one of ng, mid, geo, geof"):
        ACKTR("MlpPolicy", "CartPole-v1", method="sgd")
    with pytest.raises(ValueError, match="unknown solver 'lu': choose one of kfac, pcg, cg"):
        ACKTR("MlpPolicy", "CartPole-v1", solver="lu")


@pytest.mark.parametrize("solver", ["kfac", "pcg", "cg"])
def test_the_step_stays_within_its_trust_region(solver: str) -> None:
    agent = ACKTR("MlpPolicy", make_vec("Hopper-v4", 4, seed=0), solver=solver, target_kl=0.003, anneal=False, seed=0)
    agent.learn(2000)
    report = agent.optimizer.report
    assert report.accepted
    assert 0 < report.actual_kl <= 1.5 * 0.003
    earned = 0.003 * report.share**2  # or less, where earlier batches would see more of the step
    assert report.predicted_kl <= earned * 0.25**report.halvings * 1.001
    assert solver == "kfac" or report.predicted_kl == pytest.approx(earned * 0.25**report.halvings, rel=1e-3)


def test_annealed_steps_shorten_in_proportion_to_what_is_left() -> None:
    env = make_vec("Hopper-v4", 4, seed=0)
    agent = ACKTR("MlpPolicy", env, n_steps=32, target_kl=0.004, anneal=True, cautious=False, seed=0)
    lengths = []

    class Look(BaseCallback):
        def _on_rollout_start(self) -> None:
            if agent.last_update is not None:
                lengths.append((2 * agent.optimizer.report.predicted_kl) ** 0.5)

        def _on_step(self) -> bool:
            return True

    agent.learn(5 * 128, callback=Look())
    lengths.append((2 * agent.optimizer.report.predicted_kl) ** 0.5)
    # the last one, of a run that is over, is a hundredth
    assert np.array(lengths) == pytest.approx(np.array([0.8, 0.6, 0.4, 0.2, 0.01]) * (2 * 0.004) ** 0.5, rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_a_rate_that_falls_to_zero_ends_there(method: str) -> None:
    """SB3's progress goes below zero where the steps are no multiple of a rollout."""
    agent = ACKTR("MlpPolicy", "CartPole-v1", n_steps=16, learning_rate=lambda left: 0.3 * left, method=method, seed=0)
    agent.learn(40)
    assert agent.optimizer.steps == 3
    assert agent.optimizer.param_groups[0]["lr"] == 0
    assert torch.isfinite(parameters(agent)).all()


def test_the_actor_moves_with_its_critic_standing_still_and_the_other_way_round() -> None:
    agent = ACKTR("MlpPolicy", make_vec("Hopper-v4", 4, seed=0), seed=0)
    agent.learn(256)
    shared = {id(p) for p in agent.networks.actor_parameters} & {id(p) for p in agent.networks.critic_parameters}
    named = {id(p) for p in agent.policy.parameters()}
    assert not shared
    assert {id(p) for p in agent.networks.actor_parameters + agent.networks.critic_parameters} == named


def test_the_first_update_is_the_natural_gradient_of_the_surrogate() -> None:
    """One `ng` step with a dense solve equals (F + damping)^-1 grad by brute force, in direction."""
    env = make_vec_env(lambda: Choices(SPACES["Discrete"]), 2, seed=0)
    agent = ACKTR(
        "MlpPolicy", env, method="ng", solver="dense", n_steps=32, gradient_averaging=0.0, damping=0.1,
        policy_kwargs={"net_arch": [3]}, seed=0, learning_rate=1e-3, target_kl=1.0,
    )  # fmt: skip
    stepper = Stepper(agent, 64)
    stepper.roll()
    buffer, actor = agent.rollout_buffer, agent.networks.actor
    x = torch.as_tensor(buffer.observations.swapaxes(0, 1).reshape(-1, 3))
    actions = torch.as_tensor(buffer.actions.swapaxes(0, 1).reshape(-1)).long()
    advantages = torch.as_tensor(buffer.advantages.swapaxes(0, 1).reshape(-1))
    advantages = (advantages - advantages.mean()) / advantages.std()
    ours = agent.networks.actor_parameters

    def gradient(output: torch.Tensor) -> torch.Tensor:
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(output, ours, retain_graph=True)]).double()

    log_probs = actor(x).log_softmax(-1)
    wanted = gradient((log_probs[range(64), actions] * advantages).mean())
    fisher = torch.zeros(len(wanted), len(wanted), dtype=torch.float64)
    for row in log_probs:
        for log_prob in row:
            score = gradient(log_prob)
            fisher += torch.outer(score, score) * float(log_prob.detach().exp()) / 64
    wanted = torch.linalg.solve(fisher + 0.1 * torch.eye(len(wanted)), wanted)
    before = torch.cat([p.detach().reshape(-1) for p in ours]).double()
    stepper.update()
    moved = torch.cat([p.detach().reshape(-1) for p in ours]).double() - before
    torch.testing.assert_close(moved, 1e-3 * wanted, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bits(method: str) -> None:
    twins = [
        ACKTR("MlpPolicy", Normalize(make_vec("Hopper-v4", 4, seed=3)), method=method, n_steps=32, seed=3).learn(1000)
        for _ in range(2)
    ]
    assert torch.equal(parameters(twins[0]), parameters(twins[1]))


def test_a_saved_model_goes_on_like_the_one_it_was(tmp_path: Path) -> None:
    env = make_vec_env("CartPole-v1", 4, seed=0)
    agent = ACKTR("MlpPolicy", env, method="geof", seed=0).learn(1500)
    agent.save(tmp_path / "model")
    again = ACKTR.load(tmp_path / "model", env=env)
    assert torch.equal(parameters(agent), parameters(again))
    assert again.optimizer.memory.factors.statistics[0][0].dtype == torch.float64
    assert again.method == "geof"
    results = []
    for model in (agent, again):
        torch.manual_seed(5)
        model.set_env(env)
        env.seed(7)
        model.num_timesteps = 0
        np.random.seed(0)
        results.append(parameters(model.learn(600)))
    assert torch.equal(*results)


def test_the_critics_lambda_follows_that_of_the_advantages_through_a_file(tmp_path: Path) -> None:
    ACKTR("MlpPolicy", "CartPole-v1", gae_lambda=0.8, seed=0).save(tmp_path / "model")
    env = make_vec_env("CartPole-v1", 1, seed=0)
    agent = ACKTR.load(tmp_path / "model", env, gae_lambda=0.3).learn(32)
    buffer = agent.rollout_buffer
    assert np.allclose(buffer.returns, buffer.advantages + buffer.values, atol=1e-5)  # so that both lambdas are one


WRONG: list[tuple[str, Any, str]] = [
    ("target_kl", 0, "target_kl must be positive, not 0"),
    ("critic_updates", 0, "critic_updates must be at least 1, not 0"),
    ("torch_threads", 0, "torch_threads must be at least 1, or None"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG)
def test_a_wrong_argument_is_refused_by_name(name: str, value: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        ACKTR("MlpPolicy", "CartPole-v1", **{name: value})
    ACKTR("MlpPolicy", "CartPole-v1").save(tmp_path / "model")
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        ACKTR.load(tmp_path / "model", **{name: value})


UNSUPPORTED = {
    "unbounded": (spaces.Box(-1, np.inf, (2,)), "must have a finite lower and upper bound"),
    "Tuple": (spaces.Tuple([spaces.Discrete(2)]), r"but Tuple\(Discrete\(2\)\) was provided"),
    "Dict": (spaces.Dict({"a": spaces.Discrete(2)}), r"but Dict\('a': Discrete\(2\)\) was provided"),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_actions_that_sb3_does_not_take_are_a_wrong_value(kind: str) -> None:
    space, sentence = UNSUPPORTED[kind]
    with pytest.raises(ValueError, match=sentence):
        ACKTR("MlpPolicy", make_vec_env(lambda: Choices(space), 1))


def test_sb3s_own_policies_normalisation_and_optimisers_work() -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1", 2, seed=0))
    own = {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.0}}
    agent = ACKTR(ActorCriticPolicy, env, policy_kwargs=own, seed=0)
    before = parameters(agent)
    agent.learn(500)
    assert isinstance(agent.critic_optimizer, torch.optim.AdamW)
    assert not torch.equal(before, parameters(agent))


@pytest.mark.parametrize("sde", [False, True])
def test_a_shared_trunk_is_the_actors(sde: bool) -> None:
    """SB3's own image policy shares its features: the critic must not move what the trust region answers for."""

    class Pictures(Choices):
        def __init__(self) -> None:
            super().__init__(SPACES["Box"])
            self.observation_space = spaces.Box(0, 255, (3, 36, 36), np.uint8)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            return self.observation_space.sample(), *super().step(action)[1:]

    env = make_vec_env(Pictures, 1, seed=0)
    small = {"features_extractor_kwargs": {"features_dim": 8}}
    agent = ACKTR(ActorCriticCnnPolicy, env, n_steps=8, policy_kwargs=small, use_sde=sde, seed=0, cg_iterations=2)
    trunk = {id(p) for p in agent.policy.features_extractor.parameters()}
    assert trunk <= {id(p) for p in agent.networks.actor_parameters}
    assert not trunk & {id(p) for p in agent.networks.critic_parameters}
    before = parameters(agent)
    agent.learn(16)
    assert not torch.equal(before, parameters(agent))


def test_the_logs_have_sb3s_keys_and_ours() -> None:
    agent = ACKTR("MlpPolicy", Normalize(make_vec("Hopper-v4", 4, seed=0)), seed=0)
    seen: dict[str, Any] = {}
    logger = Logger(folder=None, output_formats=[])
    dump = logger.dump
    logger.dump = lambda step=0: (seen.update(logger.name_to_value), dump(step))[1]
    agent.set_logger(logger)
    agent.learn(2000, log_interval=1)
    wanted = ["rollout/ep_rew_mean", "rollout/ep_len_mean", "time/fps", "time/total_timesteps"]
    wanted += [f"train/{k}" for k in ("n_updates", "explained_variance", "entropy_loss", "policy_loss", "value_loss")]
    wanted += [f"train/{k}" for k in ("std", "learning_rate", "approx_kl")]
    wanted += [f"geometry/{k}" for k in ("predicted_kl", "actual_kl", "actual_over_predicted_kl", "kappa", "angle")]
    wanted += [f"geometry/{k}" for k in ("residual_before", "residual_after", "correction_norm", "damping")]
    wanted += ["geometry/condition_0", *(f"time/seconds_{k}" for k in ("rollout", "values", "policy", "critic"))]
    assert set(wanted) <= set(seen)


def test_the_defaults_are_those_of_the_preset() -> None:
    """By name; None stands for what suits the case, which the next test holds against the preset."""
    parameters = inspect.signature(ACKTR).parameters
    shared = {name: parameters[name].default for name in parameters if name in FIELDS}
    others = {name: (ours, FIELDS[name].default) for name, ours in shared.items() if ours is not None}
    assert {name: pair for name, pair in others.items() if pair[0] != pair[1]} == {}
    assert len(others) > 20


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Walker2d-v4"])
def test_an_agent_without_arguments_is_the_presets(env_id: str) -> None:
    """Networks, first weights and two updates, to the last bit."""
    settings = load("default", env_id)
    assert settings == Settings()

    def trained(make: Callable[[VecEnv], ACKTR]) -> ACKTR:
        return make(Normalize(make_vec(env_id, 4, seed=0))).learn(2 * 4 * 64)

    ours = trained(lambda env: ACKTR("MlpPolicy", env, seed=0, device="cpu"))
    theirs = trained(lambda env: make_agent(settings, env, seed=0))
    assert str(ours.policy) == str(theirs.policy)
    assert torch.equal(parameters(ours), parameters(theirs))
    assert ours.last_update == theirs.last_update
    assert ours.n_updates == 2


@pytest.mark.parametrize("policy", ACKTR.policy_aliases.values())
def test_every_policy_begins_with_the_presets_deviation(policy: type[ActorCriticPolicy]) -> None:
    assert inspect.signature(policy).parameters["log_std_init"].default == Settings().log_std_init


def test_C14_the_arguments_of_a2c_come_first_in_its_order() -> None:
    ours, theirs = (list(inspect.signature(algorithm).parameters) for algorithm in (ACKTR, A2C))
    assert ours[: len(theirs)] == theirs


@pytest.mark.parametrize("given", [{"rms_prop_eps": 1e-5}, {"use_rms_prop": False}, {"use_rms_prop": True}])
def test_C14_what_rmsprop_would_need_is_accepted_with_a_word(given: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="^rms_prop_eps and use_rms_prop do nothing here: ACKTR does not use RMSprop$"):
        ACKTR("MlpPolicy", "CartPole-v1", **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ACKTR("MlpPolicy", "CartPole-v1")


@pytest.mark.parametrize("anneal", [False, True])
def test_E17_target_kl_may_be_changed_between_updates(anneal: bool) -> None:
    env = make_vec_env(lambda: Choices(SPACES["Box"]), 4, seed=0)
    agent = ACKTR("MlpPolicy", env, n_steps=32, anneal=anneal, learning_rate=1e9, cautious=False, seed=0).learn(128)
    first = agent.optimizer.report.predicted_kl
    agent.target_kl *= 4
    agent.learn(128)
    assert agent.optimizer.report.predicted_kl == pytest.approx(4 * first, rel=1e-4)


PARTS = {
    "an actor's layer": ["mlp_extractor.policy_net.0"],
    "a critic's layer": ["mlp_extractor.value_net.0"],
    "both heads": ["action_net", "value_net"],
    "the critic": ["mlp_extractor.value_net", "value_net"],
    "all": [""],
}


@pytest.mark.parametrize(
    "settings", [{}, {"solver": "pcg", "method": "geof"}, {"policy_kwargs": {"optimizer_class": torch.optim.Adam}}]
)
@pytest.mark.parametrize("part", PARTS)
def test_E2_layers_frozen_after_loading_stay(part: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """As in fine-tuning: load, freeze, learn. Everything else goes on learning."""
    env = make_vec_env(lambda: Choices(SPACES["Discrete"]), 4, seed=0)
    ACKTR("MlpPolicy", env, n_steps=16, seed=0, **copy.deepcopy(settings)).learn(64 * 3).save(tmp_path / "agent")
    agent = ACKTR.load(tmp_path / "agent", env=env)
    frozen = {
        f"{name}.{p}".strip(".") for name in PARTS[part] for p, _ in agent.policy.get_submodule(name).named_parameters()
    }
    for name in frozen:
        agent.policy.get_parameter(name).requires_grad_(False)
    before = {name: p.detach().clone() for name, p in agent.policy.named_parameters()}
    agent.learn(64 * 3, reset_num_timesteps=False)
    moved = {name for name, p in agent.policy.named_parameters() if not torch.equal(p, before[name])}
    assert moved == before.keys() - frozen
    agent.save(tmp_path / "again")
    ACKTR.load(tmp_path / "again", env=env).learn(64)

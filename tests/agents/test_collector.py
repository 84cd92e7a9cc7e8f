"""Rollouts against SB3's own `collect_rollouts`, which is given the same actions."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from toy_envs import ACTIONS, OBSERVATIONS, make_world, policy_name, small

from geonpg.agents import ACKTR
from geonpg.agents.collector import episode_times
from geonpg.agents.rolling import shown_now, standing_still
from geonpg.agents.stepping import Stepper
from geonpg.envs import MujocoVecEnv, Normalize
from geonpg.errors import Refused

NAMES = ("new_obs", "rewards", "dones", "infos", "n_steps", "n_rollout_steps", "rollout_buffer", "env")


class Witness(BaseCallback):
    """Notes what a callback can see, and ends the rollout at step `last`."""

    def __init__(self, last: int = 2**62) -> None:
        super().__init__()
        self.last = last
        self.seen: list[dict[str, Any]] = []
        self.starts = self.ends = 0

    def _on_rollout_start(self) -> None:
        self.starts += 1

    def _on_step(self) -> bool:
        local = {name: self.locals[name] for name in (*NAMES, "actions", "clipped_actions")}
        local["rewards"] = local["rewards"].copy()  # SB3 adds to them later
        self.seen.append({**local, "total": self.num_timesteps})
        return self.n_calls < self.last

    def _on_rollout_end(self) -> None:
        self.ends += 1


def make(env: VecEnv, policy: str = "MlpPolicy", n_steps: int = 12, **options: Any) -> ACKTR:
    options = {"policy_kwargs": small(""), "seed": 0, **options}
    return ACKTR(policy, env, n_steps=n_steps, gamma=0.9, gae_lambda=0.8, **options)


def collect(agent: ACKTR, callback: Witness, by: Any = ACKTR) -> bool:
    """One rollout as `learn` would collect it. Of ours statistics stand still meanwhile, so let them for SB3's."""
    stepper = Stepper(agent, 1000, callback, reset_num_timesteps=False)
    how = agent, agent.env, stepper.callback, agent.rollout_buffer, agent.n_steps
    if by is ACKTR:
        return by.collect_rollouts(*how)
    assert agent.env is not None
    with standing_still(agent.env):
        goes_on = by.collect_rollouts(*how)
    agent._last_obs = shown_now(agent.env, agent._last_obs)
    return goes_on


def replay(agent: ACKTR, actions: NDArray[Any]) -> None:
    """Make SB3's `policy(obs)` draw these actions, one row per step: values and probabilities stay SB3's."""
    rows, space = iter(actions), agent.action_space

    def forward(observations: Any, deterministic: bool = False) -> Any:
        row = torch.as_tensor(next(rows))
        row = row.flatten() if isinstance(space, spaces.Discrete) else row
        values, log_prob, _ = agent.policy.evaluate_actions(observations, row.float())
        return row.reshape(-1, *space.shape), values, log_prob

    agent.policy.forward = forward


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_same(ours[key], theirs[key])
    else:
        assert np.array_equal(ours, theirs)


def assert_same_rollouts(ours: ACKTR, theirs: ACKTR, rollouts: int = 2) -> tuple[Witness, Witness]:
    """Ours first, then SB3's with the same actions, several times over; the agents must be twins."""
    witnesses = Witness(), Witness()
    for _ in range(rollouts):
        assert collect(ours, witnesses[0])
        a, b = ours.rollout_buffer, theirs.rollout_buffer
        replay(theirs, a.actions.copy())
        assert collect(theirs, witnesses[1], OnPolicyAlgorithm)
        for field in ("observations", "actions", "episode_starts"):
            assert_same(getattr(a, field), getattr(b, field))
        for field in ("rewards", "values", "log_probs", "returns", "advantages"):
            assert getattr(a, field).dtype == getattr(b, field).dtype
            assert np.allclose(getattr(a, field), getattr(b, field), rtol=1e-4, atol=1e-5), field
        assert a.full
        assert_same(ours._last_obs, theirs._last_obs)
        assert_same(ours._last_episode_starts, theirs._last_episode_starts)
        assert ours.num_timesteps == theirs.num_timesteps
    results = [[(e["r"], e["l"]) for e in agent.ep_info_buffer or []] for agent in (ours, theirs)]
    assert results[0] == results[1]
    return witnesses


def infos_of(witness: Witness) -> list[dict[str, Any]]:
    return [info for seen in witness.seen for info in seen["infos"]]


def assert_both_ends(witness: Witness) -> None:
    """Episodes ended by themselves and by their time limit: otherwise nothing was tested."""
    ends = [info["TimeLimit.truncated"] for info in infos_of(witness) if "terminal_observation" in info]
    assert {True, False} == set(ends)


WORLDS = [
    *((kind, "Box") for kind in OBSERVATIONS),
    *(("vector", actions) for actions in ACTIONS if actions != "Box"),
]


@pytest.mark.parametrize(("observations", "actions"), WORLDS)
def test_a_rollout_is_sb3s(observations: str, actions: str) -> None:
    twins = [
        make(make_world(observations, actions), policy_name(observations), policy_kwargs=small(observations))
        for _ in range(2)
    ]
    witness, _ = assert_same_rollouts(*twins)
    assert_both_ends(witness)


@pytest.mark.parametrize("normalized", [False, True])
def test_a_rollout_of_our_own_environments_is_sb3s(normalized: bool) -> None:
    def env() -> VecEnv:
        venv: VecEnv = MujocoVecEnv("Hopper-v5", 3, max_episode_steps=21, healthy_z_range=(1.1, 9.0))
        venv.seed(0)
        return Normalize(venv) if normalized else venv

    kwargs = {"policy_kwargs": {"log_std_init": 0.0}}
    witness, _ = assert_same_rollouts(*(make(env(), n_steps=40, **kwargs) for _ in range(2)))
    assert_both_ends(witness)


@pytest.mark.parametrize("squashed", [False, True])
def test_a_rollout_with_state_dependent_noise_is_sb3s(squashed: bool) -> None:
    """Squashed actions keep the probabilities that they had before: the ratio of two policies is the same."""
    kwargs = {"use_sde": True, "policy_kwargs": {**small(""), "squash_output": squashed}}
    ours, theirs = (make(make_world(), **kwargs) for _ in range(2))
    if squashed:
        correction = ours.policy.action_dist.bijector.log_prob_correction
        assess = ours.networks.assess

        def corrected(observations: Any, actions: NDArray[Any]) -> Any:
            values, log_probs = assess(observations, actions)
            return values, log_probs - correction(torch.as_tensor(actions).atanh()).sum(1)

        ours.networks.assess = corrected
    assert_same_rollouts(ours, theirs)


def test_rollouts_of_one_step() -> None:
    witness, _ = assert_same_rollouts(*(make(make_world(), n_steps=1) for _ in range(2)), rollouts=12)
    assert_both_ends(witness)
    agent = make(make_world(), n_steps=1).learn(9)
    assert agent.optimizer.steps == 3


def test_what_callbacks_see_is_what_sb3_shows() -> None:
    ours, theirs = assert_same_rollouts(*(make(make_world(), n_steps=5) for _ in range(2)), rollouts=3)
    assert ours.starts == ours.ends == 3
    assert ours.n_calls == len(ours.seen) == 15
    for mine, other in zip(ours.seen, theirs.seen, strict=True):
        for name in (
            "new_obs",
            "rewards",
            "dones",
            "actions",
            "clipped_actions",
            "n_steps",
            "n_rollout_steps",
            "total",
        ):
            assert np.array_equal(mine[name], other[name]), name
        assert [info.keys() for info in mine["infos"]] == [info.keys() for info in other["infos"]]
        assert isinstance(mine["env"], VecEnv)
        assert mine["rollout_buffer"].rewards.shape == (5, 3)
    assert ours.locals.keys() >= {"rollout_buffer", "new_obs", "infos"}


@pytest.mark.parametrize("last", [1, 4])
def test_a_callback_can_end_the_rollout(last: int) -> None:
    """In the same place as SB3's, and before an update is made of half a rollout."""
    ours, theirs = (make(make_world(), n_steps=5) for _ in range(2))
    whole = make(make_world(), n_steps=5)
    collect(whole, Witness())
    replay(theirs, whole.rollout_buffer.actions)
    mine, other = Witness(last), Witness(last)
    assert not collect(ours, mine)
    assert not collect(theirs, other, OnPolicyAlgorithm)
    assert mine.n_calls == other.n_calls == last
    assert mine.ends == other.ends == 0
    assert ours.num_timesteps == theirs.num_timesteps == 3 * last
    assert ours.rollout_buffer.pos == theirs.rollout_buffer.pos == last - 1
    stopped = make(make_world(), n_steps=5)
    stopped.learn(1000, callback=Witness(5 + last))
    assert (stopped.num_timesteps, stopped.optimizer.steps) == (3 * (5 + last), 1)


def test_a_time_limit_is_bootstrapped_with_the_value_of_the_last_observation() -> None:
    agent, witness = make(make_world()), Witness()
    collect(agent, witness)
    paid = np.stack([seen["rewards"] for seen in witness.seen])
    added = np.zeros_like(paid)
    for step, seen in enumerate(witness.seen):
        for i, info in enumerate(seen["infos"]):
            if info["TimeLimit.truncated"]:
                final = torch.as_tensor(info["terminal_observation"]).unsqueeze(0)
                added[step, i] = 0.9 * float(agent.policy.predict_values(final).detach())
    assert np.count_nonzero(added) >= 3
    assert np.allclose(agent.rollout_buffer.rewards, paid + added, atol=1e-6)


def test_a_time_limit_may_be_taken_for_a_termination() -> None:
    one, other = make(make_world(), limits_terminate=True), make(make_world())
    for agent in (one, other):
        torch.manual_seed(1)
        witness = Witness()
        collect(agent, witness)
    assert_both_ends(witness)
    paid = np.stack([seen["rewards"] for seen in witness.seen])
    dones = np.stack([seen["dones"] for seen in witness.seen])
    assert np.array_equal(one.rollout_buffer.rewards, paid.astype(np.float32))
    assert not np.array_equal(other.rollout_buffer.rewards, paid.astype(np.float32))
    assert np.allclose(one.rollout_buffer.returns, returns_by_hand(one, dones, 0.8), atol=1e-5)


def test_times_count_the_steps_of_episodes_across_rollouts() -> None:
    begins = np.random.default_rng(0).random((13, 4)) < 0.2  # of 12 steps, and of the one after them
    begins[0] = True
    truth = np.zeros((13, 4), np.int64)
    for step in range(1, 13):
        truth[step] = np.where(begins[step], 0, truth[step - 1] + 1)
    assert np.array_equal(episode_times(begins[:12], begins[12], None), truth)
    first = episode_times(begins[:5], begins[5], None)
    second = episode_times(begins[5:12], begins[12], first[-1])
    assert np.array_equal(np.concatenate([first[:-1], second]), truth)
    begins[0, 1:] = False
    after = episode_times(begins[:12], begins[12], np.array([9, 9, 9, 9]))
    assert after[0].tolist() == [0, 9, 9, 9]
    assert episode_times(begins[:12], begins[12], np.zeros(3, np.int64)).shape == (13, 4), "of other environments"


def critic_by_hand(agent: ACKTR, observations: NDArray[Any], times: NDArray[Any]) -> NDArray[Any]:
    """Values of observations [n, size], by SB3's own distribution and layers: they also see mean, log std and time."""
    seen = torch.as_tensor(observations).float()
    with torch.no_grad():
        normal: Any = agent.policy.get_distribution(seen).distribution
        clock = torch.as_tensor(times / 10).float().reshape(-1, 1)
        wide = torch.cat([seen, normal.mean, normal.stddev.log(), clock], 1)
        return agent.policy.value_net(agent.policy.mlp_extractor.value_net(wide)).numpy().reshape(-1)


def test_a_critic_with_extras_sees_the_policy_and_the_time() -> None:
    agent, witness = make(make_world(), n_steps=7, policy_kwargs={**small(""), "critic_extras": True}), Witness()
    times, now = [], np.zeros(3, np.int64)
    for rollout in range(3):
        collect(agent, witness)
        buffer, seen = agent.rollout_buffer, witness.seen[7 * rollout :]
        for step, (observations, each) in enumerate(zip(buffer.observations, seen, strict=True)):
            values = critic_by_hand(agent, observations, now)
            assert np.allclose(buffer.values[step], values, atol=1e-5)
            for i in np.flatnonzero([info["TimeLimit.truncated"] for info in each["infos"]]):
                final = each["infos"][i]["terminal_observation"][None]
                tail = 0.9 * critic_by_hand(agent, final, now[i : i + 1] + 1)
                assert np.allclose(buffer.rewards[step, i], each["rewards"][i] + tail, atol=1e-5)
                times.append(now[i])
            now = np.where(each["dones"], 0, now + 1)
        going, last = ~seen[-1]["dones"], critic_by_hand(agent, np.asarray(agent._last_obs), now)
        expected = buffer.rewards[-1] + 0.9 * last * going  # whatever lambda is
        assert np.allclose(buffer.returns[-1], expected, atol=1e-5)
        before = agent.policy.value_net.weight.clone()
        agent.train()
        assert not torch.equal(agent.policy.value_net.weight, before)
    assert times
    assert np.array_equal(agent.episode_steps, now)


def test_extras_are_refused_where_nobody_shows_them() -> None:
    class Mine(RolloutBuffer):
        pass

    agent = make(make_world(), rollout_buffer_class=Mine, policy_kwargs={**small(""), "critic_extras": True})
    with pytest.raises(Refused, match="critic_extras takes SB3's rollout buffer"):
        collect(agent, Witness())
    image = {**small("image"), "critic_extras": True}
    with pytest.raises(Refused, match="critic_extras takes observations that are vectors"):
        make(make_world("image"), "CnnPolicy", policy_kwargs=image)


def returns_by_hand(agent: ACKTR, dones: NDArray[Any], decay: float) -> NDArray[Any]:
    """Lambda-returns G = r + gamma ((1 - lambda) V' + lambda G'), where an episode goes on."""
    buffer = agent.rollout_buffer
    last = agent.networks.values(agent._last_obs).detach().numpy().reshape(-1)
    later, returns = last, np.zeros_like(buffer.rewards)
    for step in reversed(range(len(buffer.rewards))):
        value = last if step == len(buffer.rewards) - 1 else buffer.values[step + 1]
        goes_on = 0.9 * (1 - dones[step])
        returns[step] = later = buffer.rewards[step] + goes_on * ((1 - decay) * value + decay * later)
    return returns


def test_the_critic_has_a_lambda_of_its_own() -> None:
    """It changes the critic's targets, and not the advantages."""
    one, other = make(make_world()), make(make_world(), critic_lambda=0.3)
    for _ in range(2):  # the second rollout must not find the first one's lambda
        witnesses = []
        for agent in (one, other):
            torch.manual_seed(1)
            witnesses.append(Witness())
            collect(agent, witnesses[-1])
        dones = np.stack([seen["dones"] for seen in witnesses[0].seen])
        assert np.array_equal(one.rollout_buffer.advantages, other.rollout_buffer.advantages)
        for agent, decay in ((one, 0.8), (other, 0.3)):
            assert np.allclose(agent.rollout_buffer.returns, returns_by_hand(agent, dones, decay), atol=1e-5)
        values = one.rollout_buffer.values
        expected = returns_by_hand(one, dones, 0.8) - values
        assert np.allclose(one.rollout_buffer.advantages, expected, atol=1e-5)
        assert np.abs(one.rollout_buffer.returns - other.rollout_buffer.returns).max() > 0.01


def received(agent: ACKTR) -> NDArray[Any]:
    """What the environments got: [steps, environments, ...]."""
    assert agent.env is not None
    return np.stack(agent.env.get_attr("received"), 1)


@pytest.mark.parametrize("actions", ["Box", "Box, a matrix"])
def test_actions_are_clipped_for_the_environment_and_kept_as_drawn(actions: str) -> None:
    agent = make(make_world(actions=actions), policy_kwargs={"log_std_init": 1.0})
    collect(agent, Witness())
    space, drawn = agent.action_space, agent.rollout_buffer.actions
    assert isinstance(space, spaces.Box)
    drawn = drawn.reshape(12, 3, *space.shape)
    assert np.array_equal(received(agent), np.minimum(np.maximum(drawn, space.low), space.high))
    assert (drawn < space.low).any()
    assert (drawn > space.high).any()
    assert ((drawn > space.low) & (drawn < space.high)).any()


def test_squashed_actions_are_scaled_to_the_box() -> None:
    agent = make(make_world(), use_sde=True, policy_kwargs={"squash_output": True, "log_std_init": 0.0})
    collect(agent, Witness())
    drawn, space = agent.rollout_buffer.actions, agent.action_space
    assert isinstance(space, spaces.Box)
    assert np.abs(drawn).max() <= 1
    assert np.allclose(received(agent), space.low + (drawn + 1) / 2 * (space.high - space.low), atol=1e-6)


@pytest.mark.parametrize(("every", "changes"), [(-1, 0), (1, 5), (2, 2)])
def test_state_dependent_noise_is_renewed_as_often_as_asked(every: int, changes: int) -> None:
    agent = make(make_world(), n_steps=6, use_sde=True, sde_sample_freq=every)
    noises: list[torch.Tensor] = []

    class Look(Witness):
        def _on_step(self) -> bool:
            noises.append(agent.policy.action_dist.exploration_matrices.clone())
            return True

    collect(agent, Look())
    assert sum(not torch.equal(a, b) for a, b in pairwise(noises)) == changes
    first = noises[0]
    assert len(first) == 3
    collect(agent, Look())
    assert not torch.equal(noises[6], noises[5]), "every rollout has its own"


def test_a_buffer_with_a_get_of_its_own_keeps_it() -> None:
    class Mine(RolloutBuffer):
        asked = 0

        def get(self, batch_size: int | None = None) -> Any:
            type(self).asked += 1
            return super().get(batch_size)

    agent = ACKTR("MlpPolicy", "CartPole-v1", n_steps=8, rollout_buffer_class=Mine, seed=0)
    agent.learn(16)
    assert Mine.asked == 2

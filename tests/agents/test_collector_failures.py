"""Environments that return what is not a number."""

from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import VecEnv
from toy_envs import ACTIONS, OBSERVATIONS, World, many, policy_name, small

from geonpg.agents import ACKTR
from geonpg.finite import BrokenEnvironment, check_finite


def agent_in(env: VecEnv, policy: str = "MlpPolicy") -> ACKTR:
    return ACKTR(policy, env, n_steps=12, policy_kwargs=small(""), seed=0)


class Broken(World):
    """Something that is not a number, at one place and time."""

    def __init__(self, what: str, value: float, kind: str = "vector", at: int = 4) -> None:
        super().__init__(OBSERVATIONS[kind], ACTIONS["Box"])
        self.what, self.value, self.at = what, value, at

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        return self.spoilt(observation, "reset"), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        observation = self.spoilt(observation, "final observation" if terminated or truncated else "observation")
        if self.what == "reward" and len(self.received) == self.at:
            reward = self.value
        return observation, reward, terminated, truncated, info

    def spoilt(self, observation: Any, what: str) -> Any:
        if self.what == what and len(self.received) >= self.at:
            part = observation["place"] if isinstance(observation, dict) else observation
            part[1] = self.value
        return observation


def among(broken: Broken) -> VecEnv:
    """One broken environment as the last of three."""
    worlds = iter([World(broken.observation_space, ACTIONS["Box"]) for _ in range(2)])
    return many(lambda: next(worlds, broken))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("what", "kind"), [("observation", "vector"), ("observation", "dictionary"), ("reward", "vector")]
)
def test_a_number_that_is_none_names_its_environment(what: str, kind: str, value: float) -> None:
    agent = agent_in(among(Broken(what, value, kind)), policy_name(kind))
    before = [p.detach().clone() for p in agent.policy.parameters()]
    ends = r" \(float32 ends at 3.4e\+38\)" if np.isinf(value) else ""
    sentence = f"^environment 2 returned an? {what} of {value}, which is not finite{ends}$"
    with pytest.raises(BrokenEnvironment, match=sentence):
        agent.learn(100)
    assert all(torch.equal(a, b) for a, b in zip(before, agent.policy.parameters(), strict=True))


def test_large_numbers_are_numbers() -> None:
    """Their sum overflows; none of them does."""
    large = np.full((3, 2), 3e38, np.float32)
    with np.errstate(over="ignore"):
        check_finite(large, large[:, 0])


@pytest.mark.parametrize("what", ["observation", "final observation", "reset"])
def test_C9_a_number_that_float32_does_not_hold_is_told(what: str) -> None:
    """Of two that cancel out, too: their sum is zero."""
    agent = agent_in(among(Broken(what, -1e300, at=0 if what == "reset" else 4)))
    cure = r"which is too large for float32: scale it below 3.4e\+38$"
    with pytest.raises(BrokenEnvironment, match=rf"^environment 2 returned an observation of -1e\+300, {cure}"):
        agent.learn(36)
    with pytest.raises(BrokenEnvironment, match=rf"^environment 1 returned a reward of 1e\+39, {cure}"):
        check_finite(np.zeros((2, 1)), np.array([0.0, 1e39]))
    with pytest.raises(BrokenEnvironment, match=rf"^environment 0 returned an observation of 1e\+300, {cure}"):
        check_finite(np.array([[1e300, -1e300]]), np.zeros(1))


def test_a_first_observation_that_is_no_number() -> None:
    agent = agent_in(among(Broken("reset", np.nan, at=0)))
    with pytest.raises(BrokenEnvironment, match=r"^environment 2 returned an observation of nan, which is not finite$"):
        agent.learn(36)


def test_a_final_observation_that_is_no_number() -> None:
    agent = agent_in(among(Broken("final observation", np.nan)))
    with pytest.raises(BrokenEnvironment, match=r"^environment 2 returned an observation of nan, which is not finite$"):
        agent.learn(36)

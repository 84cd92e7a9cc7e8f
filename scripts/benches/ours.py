"""Our own agent as benchmarks of speed train it: by a preset, with a logger that writes nothing."""

from contextlib import ExitStack
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.agents import ACKTR
from geonpg.configs import Settings, load
from geonpg.envs import MujocoVecEnv
from geonpg.scripts.runs.building import make_agent, make_env, silence

SEED = 0


def settings_of(env_id: str, method: str = "geo", preset: str = "default", **changes: Any) -> Settings:
    """Load a preset without annealing, which costs no time and would start anew with every segment."""
    return load(preset, env_id, {"method": method, "anneal": False, **changes})


def our_agent(env_id: str, settings: Settings, stack: ExitStack) -> ACKTR:
    """Make our agent as `geonpg train` does."""
    env = make_env(settings, env_id, settings.n_envs, SEED)
    stack.callback(env.close)
    agent = make_agent(settings, env, SEED)
    silence(agent)
    return agent


def native_env(agent: ACKTR) -> MujocoVecEnv:
    """Return the agent's environments without their wrappers."""
    assert agent.env is not None
    env = agent.env.unwrapped
    assert isinstance(env, MujocoVecEnv)
    return env


def train_more(agent: BaseAlgorithm, steps: int) -> int:
    """Train for `steps` or, in whole rollouts, a few more; return how many they were."""
    before = agent.num_timesteps
    agent.learn(steps, reset_num_timesteps=False)
    return agent.num_timesteps - before

"""Whole rollouts with a policy inside, as training collects them, and bare physics of the same states and actions.

The policy is that of the default preset after a few updates. Every round begins in the same state with the same random
numbers, so that it visits the very states that the limit replays.
"""

from contextlib import ExitStack
from copy import deepcopy

import numpy as np

from geonpg.agents import ACKTR
from geonpg.agents.collector import roll_through, within_bounds
from geonpg.agents.rolling import can_roll, shown_now, standing_still
from geonpg.agents.state import get_state, set_state
from geonpg.agents.stepping import Stepper
from geonpg.scripts.benches.contest import Contestant
from geonpg.scripts.benches.limit import Actions, check_ends, limit_contestant
from geonpg.scripts.benches.ours import native_env, our_agent, settings_of
from geonpg.scripts.runs.process import prepare

UPDATES = 10  # before: statistics that have only begun are merged amid a rollout


class Rollouts:
    """Several rollouts in a row, which can be taken again from the same state.

    agent: whose rollouts they are.
    number: how many.
    """

    def __init__(self, agent: ACKTR, number: int) -> None:
        self.agent, self.number = agent, number
        stepper = Stepper(agent, agent.n_steps * agent.n_envs * UPDATES)
        for _ in range(UPDATES):
            stepper.step()
        self.callback, self.state = stepper.callback, deepcopy(get_state(agent))

    def restore(self) -> None:
        """Go back to the first step."""
        set_state(self.agent, deepcopy(self.state))

    def roll(self) -> None:
        """Collect one rollout into the agent's buffer: what training does in its phase `rollout`."""
        agent, env, buffer = self.agent, self.agent.env, self.agent.rollout_buffer
        assert env is not None
        buffer.reset()
        with standing_still(env):
            assert can_roll(agent, env, self.callback, buffer, buffer.buffer_size), "these rollouts are no single call"
            roll_through(agent, env, self.callback, buffer)
        assert agent._last_obs is not None
        agent._last_obs = shown_now(env, agent._last_obs)

    def take(self) -> int:
        """Take all rollouts; return how many steps of single environments they were."""
        for _ in range(self.number):
            self.roll()
        return self.number * self.agent.n_steps * self.agent.n_envs

    def actions(self) -> Actions:
        """Take all rollouts; return the actions that reached the physics: [steps, environments, actuators]."""
        taken = []
        for _ in range(self.number):
            self.roll()
            actions = self.agent.rollout_buffer.actions
            taken.append(within_bounds(self.agent.policy, actions).reshape(actions.shape))
        return np.concatenate(taken, dtype=np.float32)


def rollout_and_limit(env_id: str, n_envs: int, number: int, stack: ExitStack) -> dict[str, Contestant]:
    """Return rollouts and the limit of their physics as contestants; check that both end in the same state."""
    settings = settings_of(env_id, n_envs=n_envs)
    agent = our_agent(env_id, settings, stack)
    rollouts, env = Rollouts(agent, number), native_env(agent)
    actions = rollouts.actions()
    ends = env.simulations.physics.copy()
    rollouts.restore()
    limit = limit_contestant(env, actions, stack)
    check_ends(env.simulations.physics, ends)
    rollouts.restore()
    rollouts.take()
    check_ends(env.simulations.physics, ends)  # or rounds would not be of the same states

    def again() -> None:
        prepare(settings)
        rollouts.restore()

    return {"rollout": Contestant(again, rollouts.take), "rollout_limit": limit}

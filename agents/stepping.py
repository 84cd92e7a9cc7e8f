"""Train one rollout and one update at a time, to look or to branch off in between.

`agent.learn(...)` does the same in a loop.
"""

from collections.abc import Callable

from stable_baselines3.common.type_aliases import MaybeCallback

from .acktr import ACKTR
from .update_stats import UpdateStats


class Stepper:
    """Makes rollouts and updates of an agent on request, as `learn` makes them.

    agent: the agent to train; its state may be restored between any two calls.
    total_steps: steps of the whole run, over which step lengths and learning rates are annealed.
    callback: sees rollouts as it would in `learn`.
    reset_num_timesteps: begin anew, environments included; False to go on.
    """

    def __init__(
        self, agent: ACKTR, total_steps: int, callback: MaybeCallback = None, reset_num_timesteps: bool = True
    ) -> None:
        self.agent, self.total_steps = agent, total_steps
        _, self.callback = agent._setup_learn(total_steps, callback, reset_num_timesteps)

    def roll(self) -> bool:
        """Collect one rollout into the agent's buffer; return False if the callback ended it."""
        agent = self.agent
        assert agent.env is not None
        with agent.using_threads():
            return agent.collect_rollouts(agent.env, self.callback, agent.rollout_buffer, agent.n_steps)

    def update(self) -> UpdateStats:
        """Make one update from the last rollout, and return its numbers."""
        agent = self.agent
        agent._update_current_progress_remaining(agent.num_timesteps, self.total_steps)
        with agent.using_threads():
            agent.train()
            update = agent.last_update
        assert update is not None
        return update

    def step(self) -> UpdateStats:
        """Collect one rollout and make one update from it."""
        self.roll()
        return self.update()

    def run(self, left: Callable[[], float]) -> None:
        """Roll and update as fast as `learn` does, while anything is left.

        left: asked before every rollout for the share of the run that is left, 1 to 0, which may be counted by a
            clock; steps are annealed by it. It may look at the policy, not at the critic, whose fit may be due.
        """
        agent = self.agent
        with agent.using_threads():
            while (share := left()) > 0 and self.roll():
                agent._current_progress_remaining = share
                agent.train()
            agent.finish_update()

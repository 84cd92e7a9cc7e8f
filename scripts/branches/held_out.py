"""What an update is worth on data that it has not seen: a batch of the policy before it, drawn anew."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geonpg.agents import ACKTR
from geonpg.agents.batches import whole_batch
from geonpg.agents.inputs import InputScale, ratio_and_shift
from geonpg.agents.outputs import draws_of
from geonpg.agents.stepping import Stepper


@dataclass(frozen=True)
class HeldOut:
    """Inputs and actions of a policy, their log-probabilities, and its critic's advantages, scaled as in an update."""

    inputs: Any
    draws: Tensor
    log_prob: Tensor
    advantages: Tensor
    scale: InputScale | None  # of the inputs

    @torch.no_grad()
    def gain(self, agent: ACKTR) -> float:
        """Surrogate of the agent's policy in standard deviations of the advantage; 0 before the update."""
        log_prob = agent.networks.family.log_prob(agent.networks.actor(self._seen_by(agent)), self.draws)
        return float((torch.expm1(log_prob - self.log_prob) * self.advantages).mean())

    @torch.no_grad()
    def entropy(self, agent: ACKTR) -> float:
        """Mean entropy of the agent's policy on these inputs."""
        return float(agent.networks.family.entropy(agent.networks.actor(self._seen_by(agent))).mean())

    def _seen_by(self, agent: ACKTR) -> Any:
        """The inputs in the units of an agent's first layers, whose normalisation may have moved on since."""
        assert agent.env is not None
        followed = agent.input_follower.scale_of(agent.env)
        if self.scale is None or followed is None:
            return self.inputs
        ratio, shift = ratio_and_shift(self.scale, followed, self.inputs, largest=np.inf)
        return (self.inputs - shift) / ratio


def update(stepper: Stepper) -> HeldOut:
    """Make one rollout and one update, and return what the update was made from."""
    stepper.roll()
    batch = batch_of(stepper.agent)
    stepper.update()
    return batch


def batch_of(agent: ACKTR) -> HeldOut:
    """The agent's last rollout, before an update."""
    batch = whole_batch(agent.networks, agent.rollout_buffer)
    draws, scale = draws_of(agent.policy, batch.actions), agent.input_follower.followed
    return HeldOut(batch.inputs, draws, batch.old_log_prob, batch.advantages, scale)


def held_out(stepper: Stepper, rollouts: int, seed: int) -> HeldOut:
    """Collect rollouts of the policy as it stands, with random numbers of their own; environments move on."""
    agent = stepper.agent
    torch.manual_seed(seed)
    np.random.seed(seed)
    parts = []
    for _ in range(rollouts):
        stepper.roll()
        parts.append(batch_of(agent))
    advantages = agent.scaled(torch.cat([part.advantages for part in parts]))
    inputs, draws, log_prob = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("inputs", "draws", "log_prob")
    )
    return HeldOut(inputs, draws, log_prob, advantages, parts[0].scale)

"""Steps of one policy, recorded: what updates are made from, and what they are judged on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from geonpg.agents import ACKTR
from geonpg.agents.outputs import Networks
from geonpg.agents.stepping import Stepper
from geonpg.kfac import Family
from geonpg.scripts.branches.held_out import held_out
from geonpg.scripts.runs.building import normalization_of

MOST_RATIO = 10.0  # importance ratios of held-out steps are cut off here: one step of a million must not decide


@dataclass(frozen=True)
class Recorded:
    """Inputs and actions of a policy, their log-probabilities, and advantages with mean 0 and deviation 1."""

    inputs: Tensor
    draws: Tensor
    log_prob: Tensor
    advantages: Tensor

    def part(self, rows: Tensor) -> "Recorded":
        """Take some of the steps, with advantages scaled anew."""
        return Recorded(self.inputs[rows], self.draws[rows], self.log_prob[rows], scaled(self.advantages[rows]))

    def loss(self, networks: Networks, z: Tensor) -> Tensor:
        """The surrogate with its sign turned, of outputs z."""
        return -(torch.exp(networks.family.log_prob(z, self.draws) - self.log_prob) * self.advantages).mean()

    @torch.no_grad()
    def gain(self, networks: Networks, most: float = float("inf")) -> float:
        """Surrogate of the policy as it is; 0 for the one that was recorded.

        most: where importance ratios are cut off.
        """
        return self.gain_of(networks.family, networks.actor(self.inputs), most)

    def gain_of(self, family: Family, z: Tensor, most: float) -> float:
        """Surrogate of a policy whose outputs on these inputs are known."""
        ratio = torch.exp(family.log_prob(z, self.draws) - self.log_prob)
        return float(((ratio.clamp(max=most) - 1) * self.advantages).mean())


def scaled(advantages: Tensor) -> Tensor:
    """Give advantages mean 0 and deviation 1."""
    return (advantages - advantages.mean()) / advantages.std()


def first_rows(batch: int, n_envs: int, n_steps: int) -> Tensor:
    """Choose the rows of a batch from rollouts that stand end to end, each of them environment by environment.

    Whole rollouts, then the first steps of every environment.
    """
    size = n_envs * n_steps
    whole, rest = divmod(batch, size)
    steps = torch.arange(rest // n_envs) + n_steps * torch.arange(n_envs)[:, None]
    return torch.cat([torch.arange(whole * size), whole * size + steps.flatten()])


@contextmanager
def still(agent: ACKTR) -> Iterator[None]:
    """Let the normalisation of observations and rewards stand still, so that all rollouts show one policy."""
    assert agent.env is not None
    normalization = normalization_of(agent.env)
    if normalization is None:
        yield
        return
    before, normalization.training = normalization.training, False
    try:
        yield
    finally:
        normalization.training = before


def record(stepper: Stepper, steps: int, seed: int) -> Recorded:
    """Record at least so many steps of the policy as it stands, with random numbers of their own."""
    agent = stepper.agent
    rollouts = -(-steps // (agent.n_envs * agent.n_steps))
    with still(agent):
        found = held_out(stepper, rollouts, seed)
    return Recorded(found.inputs, found.draws, found.log_prob, scaled(found.advantages))

"""A rollout as one batch, environment by environment, so that each rank holds consecutive rows."""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, RolloutBufferSamples
from torch import Tensor
from torch.optim import Optimizer

from geonpg.kfac import Forward, NaturalGradient

from .observations import Array
from .outputs import Networks


@dataclass(frozen=True)
class UpdateBatch:
    """What an update looks at, a row for each step; `actor` and `critic` are the networks as they were run on it."""

    inputs: PyTorchObs
    actions: Tensor
    old_log_prob: Tensor
    advantages: Tensor
    returns: Tensor
    actor: Forward | None = None
    critic: Forward | None = None


@dataclass(frozen=True)
class Assessed:
    """A rollout on which both networks were run: its inputs and actions as tensors, and the networks."""

    inputs: Tensor
    actions: Tensor
    actor: Forward
    critic: Forward

    def values(self, shape: tuple[int, ...]) -> Array:
        """Return the values as the buffer has them: [steps, environments]."""
        return self.critic.at.z.cpu().numpy().reshape(shape[::-1]).T

    def batch(self, buffer: RolloutBuffer) -> UpdateBatch:
        """Make a batch of it with what the buffer has learnt since."""
        ordered = np.ravel if buffer.generator_ready else rows  # somebody may have had the buffer put them in order
        rest = (buffer.log_probs, buffer.advantages, buffer.returns)
        log_probs, advantages, returns = (torch.as_tensor(ordered(x), device=self.inputs.device) for x in rest)
        return UpdateBatch(self.inputs, self.actions, log_probs, advantages, returns, self.actor, self.critic)


def rows(recorded: Array) -> Array:
    """Put the environments' records end to end: [steps, environments, ...] becomes [environments x steps, ...]."""
    return np.ascontiguousarray(recorded.swapaxes(0, 1)).reshape(-1, *recorded.shape[2:])


def assessed(
    networks: Networks,
    optimizer: NaturalGradient,
    critic_optimizer: Optimizer,
    buffer: RolloutBuffer,
    times: Array | None = None,
) -> Assessed | None:
    """Run both networks once for values, log-probabilities and the update; None for those that are no plain chains.

    times: steps since the episodes began, [steps, environments], for a critic that sees them.
    """
    space = networks.policy.observation_space
    vectors = isinstance(space, spaces.Box) and not is_image_space(space)
    plain = networks.fixed_features and type(networks.policy.pi_features_extractor) is FlattenExtractor
    ours = type(buffer) is RolloutBuffer and isinstance(critic_optimizer, NaturalGradient)
    if not (vectors and plain and ours):
        return None
    assert isinstance(critic_optimizer, NaturalGradient)
    inputs, actions = (torch.as_tensor(rows(x)).float().flatten(1) for x in (buffer.observations, buffer.actions))
    inputs = inputs.to(networks.device)
    actor = optimizer.forward(inputs)
    if actor is None:
        return None
    seen = networks.critic_inputs(inputs, None if times is None else rows(times), actor.at.z)
    assert isinstance(seen, Tensor)
    critic = critic_optimizer.forward(seen)
    if critic is None:
        return None
    return Assessed(inputs, actions.to(networks.device), actor, critic)


def whole_batch(networks: Networks, buffer: RolloutBuffer) -> UpdateBatch:
    """Take all of a rollout as one batch, whatever the buffer."""
    samples = all_samples(buffer)
    inputs = networks.inputs(samples.observations)
    return UpdateBatch(inputs, samples.actions, samples.old_log_prob, samples.advantages, samples.returns)


def all_samples(buffer: RolloutBuffer) -> RolloutBufferSamples:
    """Take all rows in order. SB3 shuffles them; a buffer with a `get` of its own may do what it likes."""
    if type(buffer).get not in (RolloutBuffer.get, DictRolloutBuffer.get):
        return next(buffer.get(batch_size=None))
    next(buffer.get(batch_size=1))  # which puts the rows in order
    return buffer._get_samples(np.arange(buffer.buffer_size * buffer.n_envs))

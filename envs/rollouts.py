"""Whole rollouts of a simple policy inside of native environments: what goes in, and what comes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geonpg.finite import check_finite, fits

from .arrays import Array, Flags, Indices, Numbers
from .physics import LINEAR, RELU, TANH, Floats, Integers, Recording, means

# A layer of the policy: weight [out, in], bias [out], and the name of the activation behind it, "" for none.
Layer = tuple[Floats, Floats, str]
KINDS = {"": LINEAR, "tanh": TANH, "relu": RELU}


class ObservationScale(NamedTuple):
    """What observations are normalised by: the policy sees (raw - mean) / deviation within -clip and clip."""

    mean: Array
    deviation: Array
    clip: float


@dataclass(frozen=True)
class RolledOut:
    """What happened in a rollout: [steps, environments], and a row for each episode that ended, in order of time."""

    rewards: Array
    dones: Flags
    steps: Indices  # of the rollout in which an episode ended
    envs: Indices  # whose it was
    returns: Array
    lengths: Integers
    timeouts: Flags  # a time limit ended it, and nothing else
    finals: Array  # its last observation
    after: Array  # observations after some of the steps, the last among them: [some, environments, size]


def packed(layers: Sequence[Layer]) -> tuple[Floats, Integers, Integers]:
    """Put layers into the form that compiled code takes: weights, widths and kinds of activations."""
    parts = [part.ravel() for weight, bias, _ in layers for part in (bias, weight.T)]
    widths = [layers[0][0].shape[1], *(len(bias) for _, bias, _ in layers)]
    kinds = [KINDS[name] for _, _, name in layers]
    return np.concatenate(parts, dtype=np.float32), np.array(widths, np.int64), np.array(kinds, np.int64)


def policy_mean(layers: Sequence[Layer]) -> Callable[[Numbers], Floats]:
    """Return the function that computes means of actions for a batch of observations, as rollouts do, bit for bit."""
    weights, widths, kinds = packed(layers)

    def mean(observations: Numbers) -> Floats:
        return means(weights, widths, kinds, np.ascontiguousarray(observations, np.float32))

    return mean


def check_recording(recording: Recording, steps: int | None = None) -> None:
    """Raise BrokenEnvironment for the first observation or reward, of so many steps, that is not a finite float32."""
    now = slice(steps)
    ended, finals = recording.dones[now], recording.finals[now]
    after, rewards = recording.after[now], recording.rewards[now]
    if fits(after) and fits(rewards) and fits(finals[ended]):
        return
    for t in range(len(ended)):
        check_finite(after[t], rewards[t])
        check_finite(np.where(ended[t][:, None], finals[t], after[t]))


def rolled_out(recording: Recording) -> RolledOut:
    """Collect what was recorded; raise BrokenEnvironment if an observation or reward is not a finite float32."""
    check_recording(recording)
    steps, envs = recording.dones.nonzero()
    terminated = recording.terminated[steps, envs].astype(np.bool_)
    return RolledOut(
        rewards=recording.rewards,
        dones=recording.dones,
        steps=steps,
        envs=envs,
        returns=recording.final_returns[steps, envs],
        lengths=recording.final_lengths[steps, envs],
        timeouts=~terminated,
        finals=recording.finals[steps, envs],
        after=recording.after,
    )


def joined(parts: Sequence[RolledOut]) -> RolledOut:
    """Put parts of a rollout together."""
    if len(parts) == 1:
        return parts[0]
    return RolledOut(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})

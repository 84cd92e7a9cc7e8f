"""Whole rollouts in one call, where environments offer that and nobody asks to see single steps."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback, ProgressBarCallback
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from .acting import Layer, is_gaussian, noise_of, simple_layers
from .observations import Array, Observations

if TYPE_CHECKING:
    from .acktr import ACKTR


class RolledOut(Protocol):
    """What happened in a rollout: [steps, environments], and a row for each episode that ended, in order of time."""

    rewards: Array
    dones: Array
    steps: Array  # in which an episode ended
    envs: Array  # whose it was
    returns: Array
    lengths: Array
    timeouts: Array  # a time limit ended it, and nothing else
    finals: Array  # its last observation
    after: Array  # observations after some of the steps, the last among them


class Rolling(Protocol):
    """Environments that take whole rollouts of a simple policy."""

    can_roll: bool
    busy_cores: NDArray[np.int64]  # [1]: how many something else needs, so that as many threads hold back

    def roll(self, layers: Sequence[Layer], noise: Array, seen: Array, actions: Array) -> RolledOut:
        """Let a Gaussian policy act; fill in what it saw and what it answered."""


class Normalizing(Protocol):
    """A wrapper, such as our `Normalize`, whose statistics can stand still during a rollout."""

    def rollout(self) -> AbstractContextManager[None]:
        """Let the statistics stand still inside, and merge what was seen at the end."""

    def now(self) -> Observations:
        """Return the last observations as the statistics show them now."""


def normalizing(env: VecEnv) -> Normalizing | None:
    """The wrapper whose statistics can stand still, or None."""
    while isinstance(env, VecEnvWrapper):
        if hasattr(type(env), "rollout"):
            return cast(Normalizing, env)
        env = env.venv
    return None


def standing_still(env: VecEnv) -> AbstractContextManager[None]:
    """Let statistics of the environments stand still inside, where they can."""
    wrapper = normalizing(env)
    return nullcontext() if wrapper is None else wrapper.rollout()


def shown_now(env: VecEnv, observations: Observations) -> Observations:
    """The last observations as the statistics show them now; as they are, where something lies over the statistics."""
    wrapper = normalizing(env)
    return wrapper.now() if wrapper is not None and cast(object, wrapper) is env else observations


def sees_steps(callback: BaseCallback) -> bool:
    """Whether a callback looks at single steps.

    Those that do not say so by an attribute `sees_steps = False`; what they do in `on_step` they then do after the
    rollout, once for each step.
    """
    return looks(callback, "sees_steps")


def sees_updates(callback: BaseCallback) -> bool:
    """Whether a callback may look at the critic between two rollouts, and does not wait for it itself.

    Those that do, or do not look, say so by an attribute `sees_updates = False`.
    """
    return looks(callback, "sees_updates")


def looks(callback: BaseCallback, at: str) -> bool:
    """Whether a callback, or one in a list of them, does not say by an attribute of this name that it does not."""
    if type(callback) is CallbackList:
        return any(looks(each, at) for each in callback.callbacks)
    if type(callback) is ConvertCallback:
        return callback.callback is not None
    return not isinstance(callback, ProgressBarCallback) and getattr(callback, at, True)


def can_roll(agent: "ACKTR", env: VecEnv, callback: BaseCallback, buffer: RolloutBuffer, n_steps: int) -> bool:
    """Whether a rollout may be one call: simple policy, native environments, SB3's buffer, no eyes on single steps."""
    return (
        hasattr(type(env), "roll")
        and cast(Rolling, env).can_roll
        and type(buffer) is RolloutBuffer
        and buffer.buffer_size == n_steps
        and buffer.observations.dtype == np.float64
        and is_gaussian(agent.networks)
        and not agent.policy.squash_output
        and simple_layers(agent.networks) is not None
        and not sees_steps(callback)
    )


def roll(agent: "ACKTR", env: VecEnv, callback: BaseCallback, buffer: RolloutBuffer) -> RolledOut | None:
    """Fill the buffer by one call; return None if a callback ended the training."""
    layers = simple_layers(agent.networks)
    assert layers is not None
    noise = noise_of(agent.networks, buffer.buffer_size, env.num_envs, agent.ranks)
    # the critic, which nobody needs before the rollout has ended
    agent.beside.start(cast(Rolling, env).busy_cores)
    rolled = cast(Rolling, env).roll(layers, noise, buffer.observations, buffer.actions)
    agent.finish_update()
    buffer.rewards[:] = rolled.rewards
    buffer.episode_starts[0], buffer.episode_starts[1:] = agent._last_episode_starts, rolled.dones[:-1]
    buffer.pos, buffer.full = buffer.buffer_size, True
    agent._last_obs, agent._last_episode_starts = rolled.after[-1], rolled.dones[-1]
    for _ in range(buffer.buffer_size):
        agent.num_timesteps += agent.ranks.size * env.num_envs
        if not callback.on_step():
            return None
    return rolled

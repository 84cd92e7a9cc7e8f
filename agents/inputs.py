"""Keep what the networks make of an observation while the running normalisation of observations moves on.

Statistics that go on moving show the same observation to the networks as other numbers after every rollout. No trust
region sees that: where a task is solved and observations calm down, deviations shrink, the policy's gain grows with
their inverse, and a policy that nobody has touched loses what it had learnt (docs/agent.md, "What carries a solved
policy away"). So the first layers take up the change: s = W x + b stays what it was for every raw observation. Averaged
gradients and factors are left in the coordinates that they were made in: they forget faster than the statistics move.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecFrameStack, VecNormalize
from torch import Tensor, nn

# Statistics that change by more than this from one rollout to the next have only begun: nothing rests on them yet.
LARGEST_CHANGE = 0.1


class InputScale(NamedTuple):
    """What observations are normalised by: networks see (raw - mean) / deviation, [size] each."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


Change = tuple[InputScale, InputScale]  # before and after it


class Scaling(Protocol):
    """A wrapper of environments, such as our `Normalize`, that scales observations and says how."""

    def input_scale(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Mean and deviation now: [size] each; None if it leaves observations alone."""


def input_scale(env: VecEnv) -> InputScale | None:
    """The normalisation of observations now, ours or SB3's; None where there is none, or something else lies over it.

    Over it may lie wrappers that leave observations alone or put several side by side.
    """
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, VecNormalize):
            moments = env.obs_rms if env.norm_obs else None
            if not isinstance(moments, RunningMeanStd):  # but one for each part of a dictionary
                return None
            return InputScale(moments.mean.ravel(), np.sqrt(moments.var + env.epsilon).ravel())
        if hasattr(type(env), "input_scale"):
            scale = cast(Scaling, env).input_scale()
            return None if scale is None else InputScale(*scale)
        stacks = isinstance(env, VecFrameStack) or getattr(type(env), "stacks_frames", False)
        if not stacks and env.observation_space.shape != env.venv.observation_space.shape:
            return None
        env = env.venv
    return None


def ratio_and_shift(
    before: InputScale, after: InputScale, like: Tensor, largest: float = LARGEST_CHANGE
) -> tuple[Tensor, Tensor]:
    """Compute ratio and shift by which inputs x become (x - shift) / ratio: [..., size] each, of the dtype of `like`.

    Several observations may stand side by side. Inputs whose statistics changed by more than `largest` have only begun
    to have some, and are left as they are.
    """
    ratio = after.deviation / before.deviation
    shift = (after.mean - before.mean) / before.deviation
    begun = (np.abs(ratio - 1) > largest) | (np.abs(shift) > largest)
    ratio[begun], shift[begun] = 1.0, 0.0
    frames = like.shape[-1] // len(ratio)
    wide = [torch.as_tensor(np.tile(x, frames)).to(like) for x in (ratio, shift)]
    return wide[0], wide[1]


@torch.no_grad()
def follow(layers: Iterable[nn.Linear], change: Change | None) -> None:
    """Let layers over inputs scaled as after a change compute what they computed over inputs scaled as before it."""
    if change is None:
        return
    before, after = change
    for layer in layers:
        trained = all(parameter.requires_grad for parameter in layer.parameters())
        if trained and layer.in_features % len(before.mean) == 0:
            ratio, shift = ratio_and_shift(before, after, layer.weight)
            layer.bias.add_(layer.weight @ shift)
            layer.weight.mul_(ratio)


@dataclass
class InputFollower:
    """Lets first layers follow the normalisation of observations from update to update."""

    followed: InputScale | None = None  # what the layers are made for
    latest: InputScale | None = None  # what it was at the end of the last rollout

    @contextmanager
    def during_rollout(self, env: VecEnv) -> Iterator[None]:
        """Note how a rollout moves the normalisation; what no update has followed before is still due."""
        before = input_scale(env) if self.followed is self.latest else self.followed
        yield
        self.followed, self.latest = before, input_scale(env)

    def due(self) -> Change | None:
        """Return the change that layers have not followed yet, None if there is none, and take it as followed."""
        before, after = self.followed, self.latest
        self.skip()
        return None if before is None or after is None else (before, after)

    def skip(self) -> None:
        """Leave the layers as they are, and take them as made for the latest normalisation."""
        self.followed = self.latest

    def scale_of(self, env: VecEnv) -> InputScale | None:
        """The normalisation that the layers are made for, which is the environment's own before the first rollout."""
        return input_scale(env) if self.followed is None else self.followed

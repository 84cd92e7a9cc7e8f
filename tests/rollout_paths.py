"""A rollout on two paths: by one call of native environments, and step by step."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geonpg.envs import MujocoVecEnv, Normalize
from geonpg.envs.rollouts import Layer

Rolling = MujocoVecEnv | Normalize


@dataclass(frozen=True)
class Played:
    """What happened: [steps, environments, ...], a row for each episode that ended, and the last observations."""

    seen: NDArray[np.float64]
    actions: NDArray[np.float32]  # not yet within bounds
    rewards: NDArray[np.float64]
    dones: NDArray[np.bool_]
    ends: NDArray[np.float64]  # [episodes, 5]: step, environment, return, length, whether a time limit was the reason
    finals: NDArray[np.float64]
    last: NDArray[np.float64]


def layers_for(venv: Rolling, hidden: Sequence[int] = (8,), activation: str = "tanh", seed: int = 0) -> list[Layer]:
    """Layers of a policy whose actions are not small."""
    rng = np.random.default_rng(seed)
    widths = [venv.observation_space.shape[0], *hidden, venv.action_space.shape[0]]
    names = [activation] * len(hidden) + [""]
    layers = []
    for before, after, name in zip(widths, widths[1:], names, strict=False):
        weight = rng.normal(size=(after, before)) / np.sqrt(before)
        layers.append((weight.astype(np.float32), rng.normal(size=after).astype(np.float32) / 3, name))
    return layers


def noise_for(venv: Rolling, steps: int, size: float = 0.5, seed: int = 1) -> NDArray[np.float32]:
    shape = steps, venv.num_envs, *venv.action_space.shape
    return (size * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def standing(venv: Rolling) -> AbstractContextManager[None]:
    return venv.rollout() if isinstance(venv, Normalize) else nullcontext()


def by_one_call(venv: Rolling, layers: Sequence[Layer], noise: NDArray[np.float32]) -> Played:
    seen, actions = np.full((*noise.shape[:2], *venv.observation_space.shape), np.nan), np.full_like(noise, np.nan)
    with standing(venv):
        rolled = venv.roll(layers, noise, seen, actions)
    columns = rolled.steps, rolled.envs, rolled.returns, rolled.lengths, rolled.timeouts
    ends = np.stack(columns, axis=1).astype(np.float64)
    return Played(seen, actions, rolled.rewards, rolled.dones, ends, rolled.finals, rolled.after[-1])


def by_steps(venv: Rolling, first: Any, layers: Sequence[Layer], noise: NDArray[np.float32]) -> Played:
    """`first` are the observations to begin with."""
    mean, now, low, high = venv.policy_mean(layers), first, venv.action_space.low, venv.action_space.high
    steps, ends, finals = [], [], []
    with standing(venv):
        for t, row in enumerate(noise):
            actions = mean(now) + row
            after, rewards, dones, infos = venv.step(actions.clip(low, high))
            for i in np.flatnonzero(dones):
                episode = infos[i]["episode"]
                ends.append((t, i, episode["r"], episode["l"], infos[i]["TimeLimit.truncated"]))
                finals.append(infos[i]["terminal_observation"])
            steps.append((now, actions, rewards, dones))
            now = after
    parts = [np.stack(part) for part in zip(*steps, strict=True)]
    return Played(*parts, np.reshape(ends, (-1, 5)), np.reshape(finals, (-1, now.shape[1])), now)


def assert_same(one: Any, other: Any, where: str = "") -> None:
    """Equal to the last bit and in type, whatever is nested in what."""
    if isinstance(one, Played):
        for field in fields(Played):
            assert_same(getattr(one, field.name), getattr(other, field.name), field.name)
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys(), where
        for key, value in one.items():
            assert_same(value, other[key], f"{where}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same(a, b, f"{where}/{i}")
    else:
        assert type(one) is type(other), where
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None), where
        assert np.array_equal(np.asarray(one), np.asarray(other)), where

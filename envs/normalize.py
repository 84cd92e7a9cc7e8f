"""Running normalisation of observations and scaling of rewards, batched, exact, and part of a run's state."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from geonpg.errors import Refused
from geonpg.files import replacing
from geonpg.finite import check_finals, check_finite

from .task import Array, Flags
from .wrappers import restore, state_of

Everyone = Callable[[Array], Sequence[Array]]
MOMENTS = "observation_moments", "return_moments"


class Moments:
    """Mean and variance of all rows seen so far, merged batch by batch without loss (Chan et al., 1979)."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = np.zeros(size)
        self.squares = np.zeros(size)  # summed squared deviations from the mean

    def update(self, rows: Array) -> None:
        """Take in a batch of rows [n, size]."""
        mean = np.add.reduce(rows, 0) / len(rows)
        away = rows - mean
        away *= away
        self._merge(len(rows), mean, np.add.reduce(away, 0))

    def merge(self, other: "Moments") -> None:
        """As if the other's rows had been seen here."""
        if other.count:
            self._merge(other.count, other.mean, other.squares)

    def _merge(self, count: int, mean: Array, squares: Array) -> None:
        total = self.count + count
        shift = mean - self.mean
        self.mean = self.mean + shift * (count / total)
        shift *= shift
        self.squares = self.squares + squares + shift * (self.count * count / total)
        self.count = total

    def columns(self, which: slice) -> "Moments":
        """Of some of the columns."""
        part = Moments(0)
        part.count, part.mean, part.squares = self.count, self.mean[which], self.squares[which]
        return part

    @property
    def variance(self) -> Array:
        """Of the rows seen; one before any was."""
        return self.squares / self.count if self.count else np.ones_like(self.mean)

    def get_state(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean.copy(), "squares": self.squares.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.count = int(state["count"])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.squares = np.array(state["squares"], dtype=np.float64)


class Normalize(VecEnvWrapper):
    """Observations with mean zero and variance one, rewards divided by the deviation of their discounted sum.

    Of a dictionary of observations the vectors are normalised; images and choices in it stay as they are.
    The statistics move while `training` is true and stand still otherwise, for evaluation. Episode returns in
    `info["episode"]` stay those of the task. Processes that train one agent share them through `everyone`, which maps
    an array to those of all of them, in the same order everywhere.
    """

    def __init__(
        self,
        venv: VecEnv,
        *,
        observations: bool = True,
        rewards: bool = True,
        gamma: float = 0.99,
        clip: float = 10.0,
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(venv)
        self._vectors: dict[str | None, slice] = {}
        if observations:
            self.observation_space, self._vectors = scaled_space(venv.observation_space, clip)
        if not 0 <= gamma <= 1:
            raise Refused(f"gamma must lie in [0, 1], not {gamma}")
        self.scales_observations, self.scales_rewards = observations, rewards
        self.gamma, self.clip, self.epsilon = gamma, clip, epsilon
        self.training = True
        self.everyone: Everyone | None = None
        size = max((columns.stop for columns in self._vectors.values()), default=0)
        self.observation_moments, self.return_moments = Moments(size), Moments(1)
        self._discounted = np.zeros(venv.num_envs)

    def input_scale(self) -> tuple[Array, Array] | None:
        """Mean and deviation that observations are normalised with now, [size] each; None unless they are vectors."""
        if not self.scales_observations or isinstance(self.observation_space, spaces.Dict):
            return None
        return self.observation_moments.mean, np.sqrt(self.observation_moments.variance + self.epsilon)

    def normalize_observations(self, observations: Any) -> Any:
        """Observations of all environments, or of one."""
        if not self.scales_observations:
            return observations
        if isinstance(observations, dict):
            scaled = {key: self._scaled(observations[key], columns) for key, columns in self._vectors.items()}
            return {**observations, **scaled}
        return self._scaled(observations, slice(None))

    def _scaled(self, vectors: Array, columns: slice) -> Array:
        moments = self.observation_moments
        scaled: Array = vectors - moments.mean[columns]
        scaled /= np.sqrt(moments.variance[columns] + self.epsilon)
        return scaled.clip(-self.clip, self.clip, out=scaled)

    def scale_rewards(self, rewards: Array) -> Array:
        if not self.scales_rewards:
            return rewards
        deviation = float(np.sqrt(self.return_moments.variance[0] + self.epsilon))
        scaled: Array = rewards / deviation
        return scaled.clip(-self.clip, self.clip, out=scaled)

    def _rows(self, observations: Any) -> Array:
        """What there are statistics of: [n, 0] if observations, which may then be anything, are not scaled."""
        if isinstance(observations, dict) and self.scales_observations:
            return np.concatenate([observations[key] for key in self._vectors], axis=1, dtype=np.float64)
        return np.asarray(observations) if self.scales_observations else np.empty((self.num_envs, 0))

    def _learn(self, observations: Array, rewards: Array, dones: Flags) -> None:
        self._discounted = self._discounted * self.gamma + rewards
        if self.everyone is None:
            self.observation_moments.update(observations)
            self.return_moments.update(self._discounted[:, None])
        else:
            for seen in self._of_everyone(np.column_stack([observations, self._discounted])):
                self.observation_moments.merge(seen.columns(slice(-1)))
                self.return_moments.merge(seen.columns(slice(-1, None)))
        self._discounted[dones] = 0

    def _of_everyone(self, rows: Array) -> Iterator[Moments]:
        """The moments of as many rows from every process that shares these statistics."""
        assert self.everyone is not None
        own = Moments(rows.shape[1])
        own.update(rows)
        for mean, squares in self.everyone(np.stack([own.mean, own.squares])):
            seen = Moments(rows.shape[1])
            seen.count, seen.mean, seen.squares = own.count, mean, squares
            yield seen

    def reset(self) -> Any:
        observations: Any = self.venv.reset()
        check_finite(observations)
        self._discounted[:] = 0
        if self.training:
            rows = self._rows(observations)
            if self.everyone is None:
                self.observation_moments.update(rows)
            else:
                for seen in self._of_everyone(rows):
                    self.observation_moments.merge(seen)
        return self.normalize_observations(observations)

    def step_wait(self) -> VecEnvStepReturn:
        observations: Any
        observations, rewards, dones, infos = self.venv.step_wait()
        check_finite(observations, rewards)
        check_finals(dones, infos)
        if self.training:
            self._learn(self._rows(observations), rewards, dones)
        for i in dones.nonzero()[0]:
            infos[i]["terminal_observation"] = self.normalize_observations(infos[i]["terminal_observation"])
        return self.normalize_observations(observations), self.scale_rewards(rewards), dones, infos

    def get_state(self) -> dict[str, Any]:
        """The statistics, and the environments' own state where they have one."""
        return {
            "observations": self.observation_moments.get_state(),
            "returns": self.return_moments.get_state(),
            "discounted": self._discounted.copy(),
            "venv": state_of(self.venv),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        if self.scales_observations:  # otherwise there are none
            self.observation_moments.set_state(state["observations"])
        self.return_moments.set_state(state["returns"])
        self._discounted = np.array(state["discounted"], dtype=np.float64)
        restore(self.venv, state["venv"])

    def save(self, path: str | Path) -> None:
        """The statistics and how they are used, as numpy's .npz, whole or not at all; `agent.save()` has neither."""
        kept = {"observations": self.scales_observations, "rewards": self.scales_rewards}
        kept |= {name: getattr(self, name) for name in ("gamma", "clip", "epsilon")}
        for name in MOMENTS:
            kept |= {f"{name}.{key}": value for key, value in getattr(self, name).get_state().items()}
        with replacing(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, **kept)

    @staticmethod
    def load(path: str | Path, venv: VecEnv) -> "Normalize":
        """`venv` normalised as by what was saved; nothing is unpickled."""
        try:
            with np.load(path, allow_pickle=False) as kept:
                options = {name: kept[name].item() for name in ("observations", "rewards", "gamma", "clip", "epsilon")}
                states = [{key: kept[f"{name}.{key}"] for key in ("count", "mean", "squares")} for name in MOMENTS]
        except (KeyError, TypeError, ValueError, EOFError, BadZipFile):
            raise Refused(f"{path} holds no statistics of Normalize") from None
        normalized = Normalize(venv, **options)
        for name, state in zip(MOMENTS, states, strict=True):
            moments = getattr(normalized, name)
            if state["mean"].shape != moments.mean.shape:
                raise Refused(f"{path} has statistics of {state['mean'].size} numbers, not of {moments.mean.size}")
            moments.set_state(state)
        return normalized


def scaled_space(space: spaces.Space[Any], clip: float) -> tuple[spaces.Space[Any], dict[str | None, slice]]:
    """The space of scaled observations, and the columns of the statistics for each vector in it (None: it is one)."""
    refusal = Refused(
        f"Normalize takes observations that are vectors, a Box of one dimension, not {space}: leave them as they"
        " are by observations=False (normalize_observations=false)"
    )
    parts: dict[Any, Any] = dict(space.spaces) if isinstance(space, spaces.Dict) else {None: space}
    if not has_numbers(space) or any(has_numbers(part) and len(part.shape) != 1 for part in parts.values()):
        raise refusal
    columns, stop = {}, 0
    for key, part in parts.items():
        if has_numbers(part):
            columns[key] = slice(stop, stop + part.shape[0])
            stop, parts[key] = columns[key].stop, scaled_vector(part, clip)
    return spaces.Dict(parts) if isinstance(space, spaces.Dict) else parts[None], columns


def has_numbers(space: spaces.Space[Any]) -> bool:
    """Whether there is something to scale: images, which SB3 divides by 255, and choices are not."""
    if isinstance(space, spaces.Dict):
        return any(has_numbers(part) for part in space.values())
    return isinstance(space, spaces.Box) and not is_image_space(space)


def scaled_vector(space: spaces.Box, clip: float) -> spaces.Box:
    """An agent's buffer has the dtype of the space, and would cut fractions off integers."""
    return space if np.issubdtype(space.dtype, np.floating) else spaces.Box(-clip, clip, space.shape, np.float32)


def frozen(venv: VecEnv, like: Normalize) -> Normalize:
    """`venv` normalised with the statistics of `like`, which it follows and never changes; rewards stay raw."""
    normalized = Normalize(
        venv, observations=like.scales_observations, rewards=False, clip=like.clip, epsilon=like.epsilon
    )
    normalized.observation_moments = like.observation_moments
    normalized.training = False
    return normalized

"""A trained policy that acts on raw observations: it normalises them, keeps frames and scales actions by itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import VecEnv

from geonpg.configs import Settings
from geonpg.envs import Normalize, ScaleActions
from geonpg.errors import require
from geonpg.scripts.runs.building import RAW
from geonpg.scripts.runs.evaluation import evaluation_env

Array = NDArray[Any]
Observation = Any  # an array, or a dictionary of arrays

MEMORY = (
    "this policy remembers earlier steps: pass episode_start=True with the first observation of an episode, and then "
    "the state that predict returned with the action before, `action, state = policy.predict(observation, state)`"
)
PAIR = "`env.reset()` returns a pair, an observation and its info: pass the observation alone"


@dataclass(frozen=True, repr=False, eq=False)
class TrainedPolicy:
    """A policy that maps raw observations of its environment to actions, as `geonpg.load` returns it.

    path: file that it was read from.
    network: SB3's policy, which acts on normalised observations.
    env_id: gymnasium's id of the environment; None for an SB3 zip that was loaded without it.
    settings: settings of the run; for an SB3 zip, only those that `predict` needs.
    steps: environment steps of training.
    observation_space, action_space: spaces of the environment itself.
    normalization: statistics of observations; None if they stay raw.
    scaling: map from [-1, 1] to the bounds of actions; None if the network's actions are the environment's.
    """

    path: Path
    network: BasePolicy
    env_id: str | None
    settings: Settings
    steps: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    normalization: Normalize | None = None
    scaling: ScaleActions | None = None

    def predict(
        self,
        observation: Observation,
        state: Any = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """Choose an action for an observation, or one for each of a batch [n, ...]; SB3's signature.

        observation: what the plain gymnasium environment returns, an array or a dictionary of arrays.
        state: what the last call returned. Only policies that remember need it, which are recurrent or see several
            frames; for any other it is None. The policy itself keeps nothing between two calls, so that one policy can
            play many environments, and a forgotten state is refused instead of forgetting silently.
        episode_start: whether an episode begins with this observation, or with which of a batch; only policies that
            remember need it.
        deterministic: take the likeliest action; otherwise draw one.

        Returns the action, as `env.step` takes it, and the state for the next call.
        """
        batch, single = self.batch_of(observation)
        starts = None if episode_start is None else flags(episode_start, batch)
        begins = starts is not None and bool(starts.all())
        require(not self.remembers or state is not None or begins, MEMORY)
        if self.settings.frames > 1:
            batch = state = with_history(batch, state, starts, self.settings.frames)
            actions, _ = self.act(batch, deterministic=deterministic)
        else:
            actions, state = self.act(batch, state, starts, deterministic)
        return (actions[0] if single else actions), state

    @property
    def remembers(self) -> bool:
        """Whether actions depend on earlier observations of an episode."""
        return self.settings.frames > 1 or hasattr(self.network, "lstm_actor")  # sb3-contrib's, which need not be here

    def batch_of(self, observation: Observation) -> tuple[Observation, bool]:
        """Turn an observation into a batch [n, ...], and tell whether it was a single one; refuse wrong shapes."""
        require(not isinstance(observation, tuple) or len(observation) != 2, PAIR)
        space = self.observation_space if self.settings.frames > 1 else self.network.observation_space
        single = not is_batch(observation, space)
        where = np.newaxis if single else ...
        if isinstance(observation, dict):
            return {key: np.asarray(part)[where] for key, part in observation.items()}, single
        return np.asarray(observation)[where], single

    def act(
        self, seen: Observation, state: Any = None, starts: Any = None, deterministic: bool = True
    ) -> tuple[Array, Any]:
        """Choose actions for raw observations [n, ...], or [n, frames, ...] as `with_history` returns them."""
        actions, state = self.network.predict(self.inputs(seen), state, starts, deterministic)
        return (actions if self.scaling is None else self.scaling.scaled(actions)), state

    def inputs(self, seen: Observation) -> Observation:
        """Turn raw observations into the network's inputs: normalised, with frames side by side."""
        inputs = seen if self.normalization is None else self.normalization.normalize_observations(seen)
        if self.settings.frames == 1:
            return inputs
        missing = np.isnan(seen)
        missing[:, 0] = False
        return np.where(missing, 0, inputs).reshape(len(inputs), -1)

    def make_env(self, episodes: int, seed: int, **keywords: Any) -> VecEnv:
        """Make plain environments that play the episodes of a run's own evaluations, one in each."""
        require(self.env_id is not None, f"{self.path} does not say its environment: load it with env=ID")
        return evaluation_env(RAW, str(self.env_id), episodes, None, seed, **keywords)

    def __repr__(self) -> str:
        """Name file, environment, training, and what happens around the network."""
        scaled = self.normalization is not None and self.normalization.scales_observations
        frames = self.settings.frames
        facts = [
            self.env_id or "unknown environment",
            f"{self.steps} steps",
            type(self.network).__name__,
            *(["observations normalised"] if scaled else []),
            *([f"{frames} frames"] if frames > 1 else []),
            *(["actions scaled"] if self.scaling is not None else []),
        ]
        return f"<TrainedPolicy {self.path}: {', '.join(facts)}>"


def is_batch(observation: Observation, space: spaces.Space[Any]) -> bool:
    """Whether these are several observations of a space, [n, ...], and not one; refuse what is neither."""
    if isinstance(space, spaces.Dict):
        given = sorted(observation) if isinstance(observation, dict) else type(observation).__name__
        require(given == sorted(space), f"an observation is a dictionary of {sorted(space)}, not {given}")
        answers = {is_batch(observation[key], part) for key, part in space.items()}
        require(len(answers) == 1, "some parts of the observation are of a single one, and some of several")
        return answers.pop()
    shape, one = np.shape(observation), tuple(space.shape or ())
    legal = [one, (*one[1:], one[0])] if is_image_space(space) else [one]  # the network's channels come first
    kind = f"an observation has the shape {' or '.join(map(str, legal))}, and many of them [n, ...]"
    require(shape in legal or shape[1:] in legal, f"{kind}, not {shape}")
    return shape not in legal


def flags(episode_start: ArrayLike, batch: Observation) -> Array:
    """Turn `episode_start`, one for all or one for each of a batch, into an array [n]."""
    given = np.asarray(episode_start, dtype=bool)
    n = len(next(iter(batch.values())) if isinstance(batch, dict) else batch)
    require(given.shape in ((), (1,), (n,)), f"episode_start has the shape {given.shape} for {n} observations")
    return np.broadcast_to(given, n)


def with_history(batch: Array, state: Array | None, starts: Array | None, frames: int) -> Array:
    """Join a batch with earlier ones: [n, frames, ...], the newest first; NaN where an episode had not begun.

    state: what this function returned one step earlier.
    starts: which episodes begin with this batch [n].
    """
    shape = (len(batch), frames, *batch.shape[1:])
    before = np.full(shape, np.nan) if state is None else np.array(state)
    require(before.shape == shape, f"the state has the shape {before.shape}, not {shape}: is it of other episodes?")
    if starts is not None:
        before[starts] = np.nan
    return np.concatenate([batch[:, None], before[:, :-1]], axis=1)

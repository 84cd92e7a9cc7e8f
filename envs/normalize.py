"""Running normalisation of observations and scaling of rewards, batched, exact, and part of a run's state."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast, overload
from zipfile import BadZipFile

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from geonpg.errors import Refused
from geonpg.files import replacing
from geonpg.finite import check_finals, check_finite

from .arrays import Array, Flags, Numbers, State
from .moments import Moments
from .mujoco import MujocoVecEnv
from .physics import Floats, Integers, discounted_sums
from .rollouts import Layer, ObservationScale, RolledOut, joined, policy_mean
from .scaling import scaled_space
from .wrappers import restore, state_of

Gather = Callable[[Array], Sequence[Array]]
MOMENTS = "observation_moments", "return_moments"


class Normalize(VecEnvWrapper):
    """Observations with mean zero and variance one, rewards divided by the deviation of their discounted sum.

    Of a dictionary of observations the vectors are normalised; images and choices in it stay as they are.
    The statistics move while `training` is true and stand still otherwise, for evaluation. Episode returns in
    `info["episode"]` stay those of the task. An environment that returns NaN, infinity or numbers too large for float32
    raises BrokenEnvironment before the statistics change. Processes that train one agent share the statistics through
    `gather`, which maps an array to those of all processes, in the same order everywhere.

    venv: environments whose observations are vectors, or dictionaries with vectors in them.
    observations: normalise observations; False leaves them as they are, and allows any.
    rewards: scale rewards; False leaves them as they are.
    gamma: discount of the sum of rewards, the agent's own; 0.9 to 0.999.
    clip: largest magnitude of a normalised observation or scaled reward; 5 to 10.
    epsilon: added to variances, so that a constant is not divided by zero; 1e-8 to 1e-4.
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
        self._columns, size = dict[str, slice](), 0
        if observations:
            self.observation_space, self._columns, size = scaled_space(venv.observation_space, clip)
        if not 0 <= gamma <= 1:
            raise Refused(f"gamma must lie in [0, 1], not {gamma}")
        self.scales_observations, self.scales_rewards = observations, rewards
        self.gamma, self.clip, self.epsilon = gamma, clip, epsilon
        self.training = True
        self.gather: Gather | None = None
        self.observation_moments, self.return_moments = Moments(size), Moments(1)
        self._discounted = np.zeros(venv.num_envs)  # sum of rewards, of each episode in progress
        self._last: VecEnvObs | None = None  # raw observations
        self._rolling = False
        self._pending: list[tuple[Numbers, Array]] = []  # of steps that are not merged yet: rows, discounted sums
        self._pending_steps = 0
        self._processes = 1  # that share the statistics

    def input_scale(self) -> tuple[Array, Array] | None:
        """Return the mean and deviation that observations are normalised with, [size] each; None for dictionaries."""
        if not self.scales_observations or isinstance(self.observation_space, spaces.Dict):
            return None
        return self.observation_moments.mean, np.sqrt(self.observation_moments.variance + self.epsilon)

    @overload
    def normalize_observations(self, observations: Numbers) -> Numbers: ...
    @overload
    def normalize_observations(self, observations: VecEnvObs) -> VecEnvObs: ...
    def normalize_observations(self, observations: VecEnvObs) -> VecEnvObs:
        """Normalise observations of all environments, or of one."""
        if not self.scales_observations:
            return observations
        if isinstance(observations, dict):
            scaled = {key: self._scaled(observations[key], columns) for key, columns in self._columns.items()}
            return {**observations, **scaled}
        return self._scaled(np.asarray(observations), slice(None))

    def _scaled(self, vectors: Numbers, columns: slice) -> Array:
        moments = self.observation_moments
        scaled: Array = vectors - moments.mean[columns]
        scaled /= np.sqrt(moments.variance[columns] + self.epsilon)
        return scaled.clip(-self.clip, self.clip, out=scaled)

    def scale_rewards(self, rewards: Numbers) -> Numbers:
        """Divide rewards by the deviation of their discounted sum."""
        if not self.scales_rewards:
            return rewards
        deviation = float(np.sqrt(self.return_moments.variance[0] + self.epsilon))
        scaled: Numbers = rewards / deviation
        return scaled.clip(-self.clip, self.clip, out=scaled)

    def _rows(self, observations: VecEnvObs) -> Array:
        """Copy what there are statistics of: [n, 0] if observations, which may then be anything, are not scaled."""
        if not self.scales_observations:
            return np.empty((self.num_envs, 0))
        parts = [observations[key] for key in self._columns] if isinstance(observations, dict) else [observations]
        return np.concatenate(parts, axis=1, dtype=np.float64)

    def _note(self, observations: Numbers, rewards: Numbers, dones: Flags) -> None:
        """Take in what some steps returned, [steps, n, ...]: at once, or during a rollout in the end."""
        discounted = discounted_sums(rewards.astype(np.float64), dones, self.gamma, self._discounted)
        self._pending.append((observations.reshape(discounted.size, observations.shape[-1]), discounted.ravel()))
        self._pending_steps += len(rewards)
        if not self._rolling or self._steps_to_merge() <= 0:
            self._merge()

    def _steps_to_merge(self) -> int:
        """Steps until those not merged yet are as many as all before: statistics that have only begun do not wait."""
        return self.observation_moments.count // (self.num_envs * self._processes) - self._pending_steps

    def _merge(self) -> None:
        """Merge the rows of all steps since the last time into the statistics."""
        if not self._pending:
            return
        observations, discounted = (np.concatenate(part) for part in zip(*self._pending, strict=True))
        self._forget_pending()
        if self.gather is None:
            self.observation_moments.update(observations)
            self.return_moments.update(discounted[:, None])
        else:
            for seen in self._gathered(np.column_stack([observations, discounted])):
                self.observation_moments.merge(seen.columns(slice(-1)))
                self.return_moments.merge(seen.columns(slice(-1, None)))

    @contextmanager
    def rollout(self) -> Iterator[None]:
        """Let the statistics stand still inside, and merge what was seen at the end.

        Only statistics that have just begun are merged inside too, whenever they would double.
        """
        self._rolling = True
        try:
            yield
            self._merge()
        finally:
            self._rolling = False
            self._forget_pending()

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._pending_steps = 0

    def now(self) -> VecEnvObs:
        """Return the last observations as the statistics show them now."""
        assert self._last is not None
        return self.normalize_observations(self._last)

    @property
    def can_roll(self) -> bool:
        """Whether `roll` may stand for steps: over native environments; a subclass may do anything."""
        return type(self) is Normalize and isinstance(self.venv, MujocoVecEnv) and self.venv.can_roll

    @property
    def busy_cores(self) -> Integers:
        """How many cores something else needs, [1]: as long as it says so, as many threads hold back."""
        return cast(MujocoVecEnv, self.venv).busy_cores

    def roll(self, layers: Sequence[Layer], noise: Floats, seen: Array, actions: Floats) -> RolledOut:
        """Let a Gaussian policy act through a whole rollout, as `MujocoVecEnv.roll` does, on what it sees here."""
        assert isinstance(self.venv, MujocoVecEnv)
        parts, start = list[RolledOut](), 0
        while start < len(noise):
            stop = min(len(noise), start + max(self._steps_to_merge(), 1)) if self.training else len(noise)
            scale = self.input_scale()
            shown = None if scale is None else ObservationScale(*scale, self.clip)
            part = self.venv.roll(layers, noise, seen, actions, shown, slice(start, stop))
            parts.append(self._scaled_part(part, start))
            start = stop
        return joined(parts)

    def _scaled_part(self, part: RolledOut, start: int) -> RolledOut:
        """Scale a part of a rollout, which began at step `start`, and take it into the statistics."""
        rewards, finals = self.scale_rewards(part.rewards), self.normalize_observations(part.finals)
        if self.training:
            self._note(part.after if self.scales_observations else part.after[..., :0], part.rewards, part.dones)
        self._last = part.after[-1]
        after = self.normalize_observations(part.after[-1:])
        return replace(part, rewards=rewards, finals=finals, steps=part.steps + start, after=after)

    def policy_mean(self, layers: Sequence[Layer]) -> Callable[[Numbers], Floats]:
        """Return the function by which `roll` computes means of actions, for batches of observations."""
        return policy_mean(layers)

    def _gathered(self, rows: Numbers) -> Iterator[Moments]:
        """Yield the moments of the rows of every process that shares these statistics; all have equally many."""
        assert self.gather is not None
        own = Moments(rows.shape[1])
        own.update(rows)
        everyone = self.gather(np.stack([own.mean, own.squares]))
        self._processes = len(everyone)
        for mean, squares in everyone:
            seen = Moments(rows.shape[1])
            seen.count, seen.mean, seen.squares = own.count, mean, squares
            yield seen

    def reset(self) -> VecEnvObs:
        """Begin new episodes; raise BrokenEnvironment if an observation is not finite."""
        observations = self.venv.reset()
        check_finite(observations)
        self._discounted[:], self._last = 0, observations
        if self.training:
            rows = self._rows(observations)
            if self.gather is None:
                self.observation_moments.update(rows)
            else:
                for seen in self._gathered(rows):
                    self.observation_moments.merge(seen)
        return self.normalize_observations(observations)

    def step_wait(self) -> VecEnvStepReturn:
        """Step the environments; raise BrokenEnvironment if an observation or reward is not finite."""
        observations, rewards, dones, infos = self.venv.step_wait()
        check_finite(observations, rewards)
        check_finals(dones, infos)
        self._last = observations
        seen = self._rows(observations)[None], rewards[None], dones[None]
        if self.training and not self._rolling:
            self._note(*seen)
        for i in dones.nonzero()[0]:
            infos[i]["terminal_observation"] = self.normalize_observations(infos[i]["terminal_observation"])
        scaled = self.scale_rewards(rewards)
        if self.training and self._rolling:
            self._note(*seen)
        return self.normalize_observations(observations), scaled, dones, infos

    def get_state(self) -> State:
        """Return the statistics, and the environments' own state if they have one."""
        return {
            "observations": self.observation_moments.get_state(),
            "returns": self.return_moments.get_state(),
            "discounted": self._discounted.copy(),
            "venv": state_of(self.venv),
        }

    def set_state(self, state: State) -> None:
        """Continue from `get_state()`, bit for bit."""
        if self.scales_observations:
            self.observation_moments.set_state(state["observations"])
        else:  # there are none but their number
            self.observation_moments.count = int(state["observations"]["count"])
        self.return_moments.set_state(state["returns"])
        self._discounted = np.array(state["discounted"], dtype=np.float64)
        restore(self.venv, state["venv"])

    def save(self, path: str | Path) -> None:
        """Write the statistics and options as numpy's .npz, whole or not at all; `agent.save()` has neither."""
        kept = {"observations": self.scales_observations, "rewards": self.scales_rewards}
        kept |= {name: getattr(self, name) for name in ("gamma", "clip", "epsilon")}
        for name in MOMENTS:
            kept |= {f"{name}.{key}": value for key, value in getattr(self, name).get_state().items()}
        with replacing(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, **kept)

    @staticmethod
    def load(path: str | Path, venv: VecEnv) -> "Normalize":
        """Wrap `venv` with the statistics and options that were saved; nothing is unpickled."""
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


def frozen(venv: VecEnv, like: Normalize) -> Normalize:
    """Normalise `venv` with the statistics of `like`, which it follows and never changes; rewards stay raw.

    venv: environments for evaluation, with the observations of `like`.
    like: the normalisation that training uses.
    """
    normalized = Normalize(
        venv, observations=like.scales_observations, rewards=False, clip=like.clip, epsilon=like.epsilon
    )
    normalized.observation_moments = like.observation_moments
    normalized.training = False
    return normalized

"""The plan of a run: everything that `Run` and `Keeper` need to know about an algorithm."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from geonpg.configs import Settings
from geonpg.kfac import Ranks
from geonpg.scripts.runs.folder import CurveRow

Agent = TypeVar("Agent", bound=OnPolicyAlgorithm)


@dataclass(frozen=True)
class Plan(ABC, Generic[Agent]):
    """What a run is before it has done anything; subclasses say how an algorithm is made and what it reports.

    env_id, seed: the task, and the seed of all its random numbers.
    settings: environments, evaluations and budget for every algorithm; everything else for our agent only.
    """

    env_id: str
    seed: int
    settings: Settings

    only_tables: ClassVar[bool]  # the run leaves no models and no curves for TensorBoard

    @property
    @abstractmethod
    def values(self) -> Mapping[str, Any]:
        """Every setting of the algorithm by name, as in config.toml."""

    @property
    def identity(self) -> dict[str, Any]:
        """Settings that a checkpoint must agree with; the number of steps may change."""
        return {**self.values, "env": self.env_id, "seed": self.seed, "steps": None}

    @property
    @abstractmethod
    def config(self) -> str:
        """The text of config.toml."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """The contents of run.json, apart from versions."""

    @abstractmethod
    def for_steps(self, steps: int) -> Self:
        """Return this plan with another number of steps."""

    @abstractmethod
    def make(self, ranks: Ranks) -> tuple[VecEnv, Agent]:
        """Make the agent with its environments, or with this rank's share of them."""

    @abstractmethod
    def owes_row(self, agent: Agent, recorded: int) -> bool:
        """Return whether the last update belongs in the learning curve, whose latest row is of step `recorded`."""

    @abstractmethod
    def curve_row(self, agent: Agent) -> CurveRow:
        """Return the row of the learning curve for the last update."""

    @abstractmethod
    def seconds(self, agent: Agent, measured: Mapping[str, float]) -> Mapping[str, float]:
        """Return this process's seconds by phase.

        measured: seconds of rollouts ("rollout") and of updates ("policy"), measured from outside the agent.
        """


def episode_means(agent: OnPolicyAlgorithm) -> tuple[float, float]:
    """Return mean return and mean length of the latest training episodes; NaN before the first one ends."""
    episodes = agent.ep_info_buffer or ()
    if not episodes:
        return float("nan"), float("nan")
    returns, lengths = (float(np.mean([episode[key] for episode in episodes])) for key in ("r", "l"))
    return returns, lengths

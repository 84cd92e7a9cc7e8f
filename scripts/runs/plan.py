"""What a run is, before it has done anything: all that `Run` and `Keeper` need to know of an algorithm."""

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
    """What a run is, before it has done anything.

    env_id, seed: the task, and where its random numbers begin.
    settings: those of environments, evaluations and budget are every algorithm's; the others are ours alone.
    """

    env_id: str
    seed: int
    settings: Settings

    only_tables: ClassVar[bool]  # the run leaves no models and no curves for TensorBoard

    @property
    @abstractmethod
    def values(self) -> Mapping[str, Any]:
        """Every setting of the algorithm by name, as config.toml says them."""

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with; the number of steps may change."""
        return {**self.values, "env": self.env_id, "seed": self.seed, "steps": None}

    @property
    @abstractmethod
    def config(self) -> str:
        """The text of config.toml."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What run.json says beside the versions."""

    @abstractmethod
    def for_steps(self, steps: int) -> Self:
        """The same plan for another number of steps."""

    @abstractmethod
    def make(self, ranks: Ranks) -> tuple[VecEnv, Agent]:
        """The environments, or this rank's share of them, and the agent that learns in them."""

    @abstractmethod
    def owes_row(self, agent: Agent, recorded: int) -> bool:
        """Whether the update just made goes into the learning curve, whose last row is of step `recorded`."""

    @abstractmethod
    def curve_row(self, agent: Agent) -> CurveRow:
        """The row of the learning curve for the update just made."""

    @abstractmethod
    def seconds(self, agent: Agent, measured: Mapping[str, float]) -> Mapping[str, float]:
        """Seconds of this process by phase; `measured` from outside are those of rollouts and of updates ("policy")."""


def episode_means(agent: OnPolicyAlgorithm) -> tuple[float, float]:
    """Mean return and mean length of the latest training episodes; NaN before the first has ended."""
    episodes = agent.ep_info_buffer or ()
    if not episodes:
        return float("nan"), float("nan")
    returns, lengths = (float(np.mean([episode[key] for episode in episodes])) for key in ("r", "l"))
    return returns, lengths

"""The plan of a run of our own agent."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.vec_env import VecEnv

from geonpg.agents import ACKTR
from geonpg.configs import Settings, to_toml
from geonpg.errors import require
from geonpg.kfac import Ranks
from geonpg.scripts.common.artifacts import file_name
from geonpg.scripts.runs.building import make_agent, make_env, normalization_of
from geonpg.scripts.runs.folder import CurveRow
from geonpg.scripts.runs.memory import check_memory
from geonpg.scripts.runs.plan import Plan, episode_means
from geonpg.scripts.runs.process import cores

CURVE_EVERY = 10  # updates per row of the learning curve


@dataclass(frozen=True)
class OurPlan(Plan[ACKTR]):
    """The plan of a run of our own agent.

    preset: where the settings come from, a name or a .toml file; they are complete without it.
    device: cpu or cuda.
    """

    preset: str = "default"
    device: str = "cpu"

    only_tables = False

    @property
    def name(self) -> str:
        """Environment, preset, method and seed, joined to a name."""
        return f"{file_name(self.env_id)}_{Path(self.preset).stem}_{self.settings.method}_{self.seed}"

    @property
    def values(self) -> dict[str, Any]:
        return asdict(self.settings)

    @property
    def config(self) -> str:
        return to_toml(self.settings, self.name)

    @property
    def facts(self) -> dict[str, Any]:
        return {"env": self.env_id, "seed": self.seed, "preset": self.preset, "device": self.device}

    def for_steps(self, steps: int) -> "OurPlan":
        return replace(self, settings=replace(self.settings, steps=steps))

    def make(self, ranks: Ranks) -> tuple[VecEnv, ACKTR]:
        settings = shared(self.settings, ranks)
        own = settings.n_envs // ranks.size
        env = make_env(settings, self.env_id, own, self.seed)
        check_memory(settings, env)
        agent = make_agent(settings, env, self.seed, self.device, ranks)
        env.seed(self.seed + ranks.rank * own)  # an agent seeds its environments as if they were all there are
        normalization = normalization_of(env)
        if normalization is not None and ranks.size > 1:
            normalization.gather = lambda own: [x.numpy() for x in ranks.collected(torch.from_numpy(own))]
        return env, agent

    def owes_row(self, agent: ACKTR, recorded: int) -> bool:
        return agent.n_updates % CURVE_EVERY == 0

    def curve_row(self, agent: ACKTR) -> CurveRow:
        update = agent.last_update
        assert update is not None
        return CurveRow(
            agent.num_timesteps,
            *episode_means(agent),
            kl=update.report.actual_kl,
            entropy=update.entropy,
            explained_variance=update.explained_variance,
            value_loss=update.value_loss,
            rejected=update.rejected,
        )

    def seconds(self, agent: ACKTR, measured: Mapping[str, float]) -> Mapping[str, float]:
        return agent.seconds


def shared(settings: Settings, ranks: Ranks) -> Settings:
    """Return the settings for one rank; raise Refused if the environments cannot be divided evenly among the ranks."""
    count = settings.n_envs
    require(count % ranks.size == 0, f"n_envs must be a multiple of the {ranks.size} processes, not {count}")
    if ranks.size > 1 and settings.env_threads == 0:
        return replace(settings, env_threads=cores())
    return settings

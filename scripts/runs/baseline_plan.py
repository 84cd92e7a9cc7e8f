"""The plan of a baseline's run: PPO, A2C or TRPO in environments and evaluations like ours."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, cast

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from geonpg.configs import Settings, shown
from geonpg.errors import choose, known, require
from geonpg.kfac import Ranks
from geonpg.scripts.runs import baseline_settings as zoo
from geonpg.scripts.runs.building import ACTIVATIONS, make_env, policy_for
from geonpg.scripts.runs.folder import CurveRow
from geonpg.scripts.runs.plan import Plan, episode_means

CURVE_STEPS = 10_000  # at least, between two rows of the learning curve
BUDGET = ("steps", "eval_every", "eval_episodes", "torch_threads", "env_threads")
NEEDED = ("n_envs", "n_steps", "gamma", "normalize", *BUDGET)  # settings that our own Settings are made of
# Columns of the learning curve, by what the algorithms log; what one of them does not log is not a number.
LOGGED = {
    "kl": ("train/approx_kl", "train/kl_divergence_loss"),
    "entropy": ("train/entropy_loss",),
    "explained_variance": ("train/explained_variance",),
    "value_loss": ("train/value_loss",),
}


def config_of(algorithm: str, settings: str, env_id: str, budget: Mapping[str, Any]) -> dict[str, Any]:
    """Return every setting of a baseline's config.toml; `budget` holds those of BUDGET that are not our defaults."""
    known("algorithm", algorithm, zoo.ALGORITHMS)
    return complete_config(algorithm, settings, env_id, budget)


def complete_config(algorithm: str, settings: str, env_id: str, budget: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same of any algorithm, also of one that `geonpg race` alone trains."""
    ours = Settings(**budget)
    shared = {key: getattr(ours, key) for key in BUDGET}
    return {"algorithm": algorithm, "settings": settings, **zoo.settings_of(algorithm, settings, env_id), **shared}


def run_settings(config: Mapping[str, Any]) -> Settings:
    """Return environments, evaluations and budget of a config.toml in our own terms."""
    shared = {key: config[key] for key in NEEDED}
    scaled = shared.pop("normalize")
    return Settings(**shared, normalize_observations=scaled, normalize_rewards=scaled)


def make_baseline(env_id: str, seed: int, config: Mapping[str, Any]) -> tuple[VecEnv, BaseAlgorithm]:
    """Make an algorithm with its environments, as a config.toml says."""
    settings = run_settings(config)
    env = make_env(settings, env_id, settings.n_envs, seed)
    policy = {key: config[key] for key in zoo.POLICY if key in config}
    if "hidden" in policy:
        hidden = policy.pop("hidden")
        policy["net_arch"] = {"pi": list(hidden), "vf": list(hidden)}
    if "activation" in policy:
        policy["activation_fn"] = choose("activation", policy.pop("activation"), ACTIVATIONS)
    other = ("algorithm", "settings", "n_envs", "normalize", *zoo.POLICY, *BUDGET)
    keywords = {key: value for key, value in config.items() if key not in other}
    make: Callable[..., BaseAlgorithm] = zoo.class_of(config["algorithm"])
    name = policy_for(env.observation_space)
    return env, make(name, env, seed=seed, device="cpu", policy_kwargs=policy, **keywords)


@dataclass(frozen=True)
class BaselinePlan(Plan[OnPolicyAlgorithm]):
    """The plan of a baseline's run.

    algorithm_settings: everything that its config.toml holds.
    """

    algorithm_settings: Mapping[str, Any]

    only_tables = True

    @classmethod
    def of_config(cls, env_id: str, seed: int, config: Mapping[str, Any]) -> "BaselinePlan":
        """Make the plan of a run with this config.toml."""
        return cls(env_id, seed, run_settings(config), config)

    @property
    def values(self) -> Mapping[str, Any]:
        return self.algorithm_settings

    @property
    def config(self) -> str:
        return "".join(f"{key} = {shown(value)}\n" for key, value in self.values.items())

    @property
    def facts(self) -> dict[str, Any]:
        _, _, package = zoo.ALGORITHMS[self.values["algorithm"]]
        made_by = f"{package} {version(package)}"
        return {"env": self.env_id, "seed": self.seed, "device": "cpu", "package": made_by}

    def for_steps(self, steps: int) -> "BaselinePlan":
        return self.of_config(self.env_id, self.seed, {**self.values, "steps": steps})

    def make(self, ranks: Ranks) -> tuple[VecEnv, OnPolicyAlgorithm]:
        require(ranks.size == 1, f"a baseline is trained by one process, not by {ranks.size}")
        env, agent = make_baseline(self.env_id, self.seed, self.values)
        return env, cast(OnPolicyAlgorithm, agent)

    def owes_row(self, agent: OnPolicyAlgorithm, recorded: int) -> bool:
        return agent.num_timesteps >= recorded + CURVE_STEPS

    def curve_row(self, agent: OnPolicyAlgorithm) -> CurveRow:
        values = agent.logger.name_to_value
        logged = {
            column: next((float(values[key]) for key in keys if key in values), float("nan"))
            for column, keys in LOGGED.items()
        }
        logged["entropy"] *= -1  # the loss is its negative
        return CurveRow(agent.num_timesteps, *episode_means(agent), **logged, rejected=float("nan"))

    def seconds(self, agent: OnPolicyAlgorithm, measured: Mapping[str, float]) -> Mapping[str, float]:
        """Return the seconds measured from outside; SB3 trains policy and critic together."""
        return {**measured, "values": float("nan"), "critic": float("nan")}

"""Settings of the baselines: the defaults of SB3, sb3-contrib and SBX, or rl-zoo3's tuned values for MuJoCo.

A setting has the name of the constructor's argument. Beside those there are n_envs, normalize (observations and
rewards), and hidden, activation, log_std_init and ortho_init of the policy's networks.
"""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.configs import task_names
from geonpg.configs.presets import FAMILIES as TASKS
from geonpg.errors import Refused, known

# Algorithms: the package that holds the class, the class, and what pip calls the package.
ALGORITHMS = {
    "ppo": ("stable_baselines3", "PPO", "stable-baselines3"),
    "a2c": ("stable_baselines3", "A2C", "stable-baselines3"),
    "trpo": ("sb3_contrib", "TRPO", "sb3-contrib"),
}
# Those that only `geonpg race` trains: checkpoints of `geonpg compare` hold no replay buffer.
OFF_POLICY = {
    "sac": ("stable_baselines3", "SAC", "stable-baselines3"),
    "tqc": ("sb3_contrib", "TQC", "sb3-contrib"),
    "sbx-sac": ("sbx", "SAC", "sbx-rl"),
}
ALL = ALGORITHMS | OFF_POLICY
SETTINGS = ("default", "zoo")
NOT_SETTINGS = ("verbose", "_init_setup_model")
POLICY = ("hidden", "activation", "log_std_init", "ortho_init")

WIDE = {"hidden": [256, 256], "activation": "relu", "log_std_init": -2.0, "ortho_init": False}
PPO_KEYS = (
    "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "learning_rate", "ent_coef", "clip_range",
    "max_grad_norm", "vf_coef",
)  # fmt: skip
# rl-zoo3's hyperparams/ppo.yml, one row per task in the order of PPO_KEYS
PPO_VALUES = {
    "HalfCheetah": (512, 64, 20, 0.98, 0.92, 2.0633e-05, 0.000401762, 0.1, 0.8, 0.58096),
    "Hopper": (512, 32, 5, 0.999, 0.99, 9.80828e-05, 0.00229519, 0.2, 0.7, 0.835671),
    "Walker2d": (512, 32, 20, 0.99, 0.95, 5.05041e-05, 0.000585045, 0.1, 1.0, 0.871923),
    "Reacher": (512, 32, 5, 0.9, 1.0, 0.000104019, 7.52585e-08, 0.3, 0.9, 0.950368),
    "InvertedPendulum": (32, 64, 5, 0.999, 0.9, 0.000222425, 1.37976e-07, 0.4, 0.3, 0.19816),
    "InvertedDoublePendulum": (128, 512, 10, 0.98, 0.8, 0.000155454, 1.05057e-06, 0.4, 0.5, 0.695929),
    "Humanoid": (512, 256, 5, 0.95, 0.9, 3.56987e-05, 0.00238306, 0.3, 2.0, 0.431892),
    "HumanoidStandup": (512, 32, 20, 0.99, 0.9, 2.55673e-05, 3.62109e-06, 0.3, 0.7, 0.430793),
}
PPO_WIDE = ("HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup")
PPO_SWIMMER = {
    "n_envs": 4, "n_steps": 1024, "batch_size": 256, "gamma": 0.9999, "gae_lambda": 0.98, "learning_rate": 6e-4,
}  # fmt: skip
# trpo.yml and a2c.yml tune some of the tasks; what those share is used for the others as well.
TRPO = {
    "n_envs": 2, "n_steps": 1024, "batch_size": 128, "gamma": 0.99, "gae_lambda": 0.95, "learning_rate": 1e-3,
    "cg_max_steps": 25, "cg_damping": 0.1, "n_critic_updates": 20,
}  # fmt: skip
# sac.yml and tqc.yml, on these tasks; on others the zoo leaves the defaults
OFF_POLICY_TASKS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Swimmer", "Walker2d")


def class_of(algorithm: str) -> type[BaseAlgorithm]:
    """Return the class of an algorithm; raise Refused if its package is not installed."""
    package, name, project = ALL[known("algorithm", algorithm, ALL)]
    try:
        found: type[BaseAlgorithm] = getattr(import_module(package), name)
    except ImportError as error:
        raise Refused(f"{algorithm} needs {project}: {error} (pip install {project})") from None
    return found


def defaults_of(algorithm: str) -> dict[str, Any]:
    """Return the constructor's defaults that are plain values, and SB3's n_envs and normalize."""
    parameters = inspect.signature(class_of(algorithm)).parameters
    plain = {name: p.default for name, p in parameters.items() if isinstance(p.default, bool | int | float)}
    own = {name: value for name, value in plain.items() if name not in NOT_SETTINGS}
    return {"n_envs": 1, "normalize": False, **own}


def tuned(algorithm: str, env_id: str) -> dict[str, Any]:
    """Return the settings that rl-zoo3 changes for a task."""
    task = known(f"task of rl-zoo3's {algorithm}", task_names(env_id)[0], TASKS)
    if algorithm in OFF_POLICY:
        return tuned_off_policy(algorithm, task)
    values: dict[str, Mapping[str, Any]] = {"ppo": tuned_ppo(task), "trpo": TRPO, "a2c": {}}
    own: dict[tuple[str, str], Mapping[str, Any]] = {
        ("trpo", "HalfCheetah"): {"target_kl": 0.04},
        ("trpo", "Swimmer"): {"gamma": 0.9999},
    }
    return {"normalize": True, **values[algorithm], **own.get((algorithm, task), {})}


def tuned_ppo(task: str) -> dict[str, Any]:
    """Return what ppo.yml changes for a task; for Ant, nothing."""
    rows = {name: dict(zip(PPO_KEYS, row, strict=True)) for name, row in PPO_VALUES.items()}
    return {**rows.get(task, PPO_SWIMMER if task == "Swimmer" else {}), **(WIDE if task in PPO_WIDE else {})}


def tuned_off_policy(algorithm: str, task: str) -> dict[str, Any]:
    """Return what sac.yml and tqc.yml change for a task; SBX's SAC takes SAC's."""
    own: dict[str, Mapping[str, Any]] = {"Swimmer": {"gamma": 0.999}}
    if algorithm == "tqc":
        own["Hopper"] = {"top_quantiles_to_drop_per_net": 5}
    return {"learning_starts": 10_000, **own.get(task, {})} if task in OFF_POLICY_TASKS else {}


def settings_for(env_id: str) -> str:
    """Return which settings suit a task: the zoo's or, for tasks unknown to it, the defaults, as the zoo does."""
    return "zoo" if task_names(env_id)[0] in TASKS else "default"


def settings_of(algorithm: str, settings: str, env_id: str) -> dict[str, Any]:
    """Return every setting of a baseline on a task, by name."""
    values = defaults_of(algorithm)
    return values | tuned(algorithm, env_id) if known("settings", settings, SETTINGS) == "zoo" else values

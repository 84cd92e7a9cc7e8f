"""Trained policies, loaded with everything that their environment needs around it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.utils import check_for_correct_spaces
from stable_baselines3.common.vec_env import VecEnv

from geonpg.agents.checkpoint import read
from geonpg.agents.forms import misfit
from geonpg.configs import Settings
from geonpg.envs import Normalize
from geonpg.envs.spaces import one_line
from geonpg.errors import Refused, require
from geonpg.scripts.models.normalization import load_normalization
from geonpg.scripts.runs.building import RAW, evaluation_env, make_agent, make_env, normalization_of, prepare
from geonpg.scripts.runs.folder import DONE, recorded_env

KINDS = "a run folder, a .ckpt model or an SB3 .zip"


@dataclass(frozen=True)
class Model:
    """A trained policy, and how its environments were made."""

    path: Path
    policy: BasePolicy
    env_id: str
    settings: Settings
    normalization: Normalize | None
    steps: int
    observation_space: spaces.Space[Any]  # of the task itself, inside all wrappers
    action_space: spaces.Space[Any]

    def make_env(self, episodes: int, seed: int, **keywords: Any) -> VecEnv:
        """As a run's own evaluations have them."""
        return evaluation_env(self.settings, self.env_id, episodes, self.normalization, seed, **keywords)


def load(path: Path, which: str | None = None, env_id: str | None = None, normalization: Path | None = None) -> Model:
    """The model at a path. `which`: of a run folder's models, the final one by default.

    `env_id`: of an SB3 zip, which does not say it; of any other, it must be what the file says. `normalization`: a file
    with statistics of the zip's observations, without which they stay raw.
    """
    require(path.exists(), f"{path} does not exist: name {KINDS}")
    require(which is None or path.is_dir(), f"--model chooses among the models of a run folder, and {path} is a file")
    if path.suffix == ".zip" and path.is_file():
        require(env_id is not None, f"{path} does not say its environment: name it by --env")
        return from_zip(path, str(env_id), normalization)
    require(normalization is None, f"--normalization is for an SB3 .zip: {path} holds its own")
    return from_checkpoint(model_in(path, which or "final") if path.is_dir() else path, env_id)


def model_in(folder: Path, which: str) -> Path:
    path = folder / f"{which}.ckpt"
    if not path.exists():
        require((folder / "run.json").exists(), f"{folder} is no run folder: it holds no {path.name} and no run.json")
        others = ", ".join(sorted(other.stem for other in folder.glob("*.ckpt"))) or "none"
        kept = ": of a run that has ended, geonpg compare keeps results only" if (folder / DONE).exists() else ""
        raise Refused(f"{folder} has no {which} model; there is {others}{kept}")
    return path


def from_checkpoint(path: Path, named: str | None = None) -> Model:
    """What a run left as best.ckpt or final.ckpt; nothing in it is unpickled."""
    state = read(path)
    require("agent" not in state, f"{path} is what a run resumes from, not a model: name the run folder")
    strange = f"{path} is no model that this version knows: "
    try:
        settings, env_id = Settings(**state["settings"]), str(state["env"])
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{strange}{error}") from None
    prepare(settings)
    env = make_env(settings, recorded_env(env_id, named, path), 1, 0)
    weights = state.get("policy")
    names = weights if isinstance(weights, dict) else ()
    policy, normalization = make_agent(settings, env, 0, weights=names).policy, normalization_of(env)
    env.close()
    moments = normalization.observation_moments if normalization else None
    form = {"steps": 0, "policy": policy.state_dict(), "normalization": moments.get_state() if moments else None}
    wrong = misfit({name: state[name] for name in form if name in state}, form, "the model")
    require(not wrong, f"{strange}{wrong}")
    fill(policy, weights, path)
    if moments is not None:
        moments.set_state(state["normalization"])
    task, steps = env.unwrapped, state["steps"]
    return Model(path, policy, env_id, settings, normalization, steps, task.observation_space, task.action_space)


def from_zip(path: Path, env_id: str, normalization: Path | None = None) -> Model:
    """The policy that any algorithm of SB3 has saved. SB3 unpickles parts of it."""
    prepare(RAW)
    env = make_env(RAW, env_id, 1, 0)
    normalized = None if normalization is None else load_normalization(normalization, env)
    policy, weights, steps = read_zip(path)
    try:
        seen = BaseAlgorithm._wrap_env(normalized or env)
        check_for_correct_spaces(seen, policy.observation_space, policy.action_space)
    except ValueError as error:
        raise Refused(f"{path} was not trained on {env_id}: {one_line(error)}") from None
    env.close()
    fill(policy, weights, path)
    task, scaled = env.unwrapped, normalized is not None and normalized.scales_observations
    settings = replace(RAW, normalize_observations=scaled)
    return Model(path, policy, env_id, settings, normalized, steps, task.observation_space, task.action_space)


def read_zip(path: Path) -> tuple[BasePolicy, Any, int]:
    """The policy as it was made, its weights, and the steps that it was trained for."""
    try:
        data, weights, _ = load_from_zip_file(path, device="cpu")
        for name in ("observation_space", "action_space", "policy_class", "policy_kwargs", "num_timesteps"):
            require(data is not None and name in data, f"it does not say its {name}")
        assert data is not None
        require("policy" in weights, "it holds no policy.pth")
        keywords = {**data["policy_kwargs"], **({"use_sde": True} if data.get("use_sde") else {})}
        policy = data["policy_class"](data["observation_space"], data["action_space"], lambda _: 0.0, **keywords)
        return policy, weights["policy"], int(data["num_timesteps"])
    except Exception as error:  # unpickling a foreign file can fail in any way
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}, "
        raise Refused(f"{path} is no model of SB3: {kind}{one_line(error)}") from None


def fill(policy: BasePolicy, weights: Any, path: Path) -> None:
    try:
        policy.load_state_dict(weights)
    except (RuntimeError, TypeError) as error:
        raise Refused(f"the weights in {path} do not fit its policy: {one_line(error)}") from None
    policy.set_training_mode(False)

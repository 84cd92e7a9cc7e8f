"""Trained policies read from files: run folders and checkpoints, of which nothing is unpickled, and SB3's zips."""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.utils import check_for_correct_spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, unwrap_vec_wrapper

from geonpg.agents import ACKTR
from geonpg.agents.checkpoint import read
from geonpg.agents.forms import misfit
from geonpg.configs import Settings
from geonpg.envs import Normalize, ScaleActions
from geonpg.envs.make import unknown
from geonpg.envs.spaces import one_line
from geonpg.errors import Refused, known, require
from geonpg.scripts.models.normalization import load_normalization
from geonpg.scripts.models.policy import TrainedPolicy
from geonpg.scripts.runs.building import RAW, channels_first, policy_for, policy_kwargs, wrapped
from geonpg.scripts.runs.folder import BEST, DONE, FACTS, FINAL
from geonpg.scripts.runs.guard import making
from geonpg.scripts.runs.trust import recorded_env

KINDS = "a run folder, a .ckpt model or an SB3 .zip"
MODELS = {"final": FINAL, "best": BEST}


def load(
    path: str | PathLike[str],
    model: str | None = None,
    env: str | None = None,
    normalization: str | PathLike[str] | None = None,
) -> TrainedPolicy:
    """Load a trained policy, which maps raw observations to actions: `policy.predict(observation)`.

    path: a run folder, one of its .ckpt models, or a .zip saved by any algorithm of SB3. SB3 unpickles parts of a zip,
        which can run code: trust its origin. Of run folders and .ckpt files nothing is unpickled.
    model: which model of a run folder, "final" (the default) or "best".
    env: gymnasium's id of the environment. A zip does not hold it, and needs it only for `make_env`. Others hold it,
        and need it only if it is module:Id, because importing that module runs its code.
    normalization: file with the statistics of a zip's observations, which stay raw without it: an .npz saved by
        geonpg's Normalize, or what SB3's VecNormalize saved, of which nothing is run. Others hold their own.

    Raises geonpg.errors.Refused, with one sentence, if the path is no such model.
    """
    path = Path(path)
    require(path.exists(), f"{path} does not exist: name {KINDS}")
    if model is not None:
        known("model", model, MODELS)
        require(path.is_dir(), f"model {model!r} is chosen among those of a run folder, and {path} is a file")
    if path.suffix == ".zip" and path.is_file():
        return from_zip(path, env, None if normalization is None else Path(normalization))
    require(normalization is None, f"normalization is for an SB3 .zip: {path} holds its own")
    return from_checkpoint(model_in(path, model or "final") if path.is_dir() else path, env)


class Spaces(gymnasium.Env[Any, Any]):
    """An environment that is nothing but its spaces, for wrappers, which need no more."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def spaces_of(env_id: str) -> Spaces:
    """Make an environment to learn its spaces."""
    require(env_id in gymnasium.registry or ":" in env_id, unknown(env_id))
    with making(env_id):
        env = gymnasium.make(env_id)
        env.close()
    return Spaces(env.observation_space, env.action_space)


def vectorized(task: Spaces) -> VecEnv:
    """Put spaces into a vector environment, as a run's wrappers expect it."""
    return channels_first(DummyVecEnv([lambda: task]))


def model_in(folder: Path, which: str) -> Path:
    """Find the file of one of a run folder's models."""
    path = folder / MODELS[which]
    if not path.exists():
        require((folder / FACTS).exists(), f"{folder} is no run folder: it holds no {path.name} and no {FACTS}")
        others = ", ".join(sorted(other.stem for other in folder.glob("*.ckpt"))) or "none"
        kept = ": of a run that has ended, geonpg compare keeps results only" if (folder / DONE).exists() else ""
        raise Refused(f"{folder} has no {which} model; there is {others}{kept}")
    return path


def from_checkpoint(path: Path, named: str | None = None) -> TrainedPolicy:
    """Load what a run left as best.ckpt or final.ckpt; nothing in it is unpickled."""
    state = read(path)
    require("agent" not in state, f"{path} is what a run resumes from, not a model: name the run folder")
    strange = f"{path} is no model that this version knows: "
    try:
        settings, env_id = Settings(**state["settings"]), str(state["env"])
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{strange}{error}") from None
    task = spaces_of(recorded_env(env_id, named, path))
    env, weights = wrapped(settings, vectorized(task)), state.get("policy")
    network = new_network(settings, env, weights if isinstance(weights, dict) else {})
    normalization = unwrap_vec_wrapper(env, Normalize)
    moments = normalization.observation_moments if normalization else None
    form = {"steps": 0, "policy": network.state_dict(), "normalization": moments.get_state() if moments else None}
    wrong = misfit({name: state[name] for name in form if name in state}, form, "the model")
    require(not wrong, f"{strange}{wrong}")
    fill(network, weights, path)
    if moments is not None:
        moments.set_state(state["normalization"])
    scaling, shown = unwrap_vec_wrapper(env, ScaleActions), (task.observation_space, task.action_space)
    return TrainedPolicy(path, network, env_id, settings, state["steps"], *shown, normalization, scaling)


def new_network(settings: Settings, env: VecEnv, weights: dict[str, Any]) -> BasePolicy:
    """Make an untrained policy for these settings; torch's random numbers stay as they were."""
    kind = ACKTR.policy_aliases[policy_for(env.observation_space, weights)]
    with torch.random.fork_rng(devices=[]):
        return kind(env.observation_space, env.action_space, lambda _: 0.0, **policy_kwargs(settings))


def from_zip(path: Path, env_id: str | None = None, normalization: Path | None = None) -> TrainedPolicy:
    """Load the policy that any algorithm of SB3 has saved. SB3 unpickles parts of it."""
    task = None if env_id is None else spaces_of(env_id)
    network, weights, steps = read_zip(path)
    env = vectorized(task or Spaces(network.observation_space, network.action_space))
    normalized = None if normalization is None else load_normalization(normalization, env)
    try:
        seen = BaseAlgorithm._wrap_env(normalized or env)
        check_for_correct_spaces(seen, network.observation_space, network.action_space)
    except ValueError as error:
        raise Refused(f"{path} was not trained on {env_id}: {one_line(error)}") from None
    fill(network, weights, path)
    scaled = normalized is not None and normalized.scales_observations
    settings, shown = replace(RAW, normalize_observations=scaled), task or network
    return TrainedPolicy(
        path, network, env_id, settings, steps, shown.observation_space, shown.action_space, normalized
    )


def read_zip(path: Path) -> tuple[BasePolicy, Any, int]:
    """Read an untrained policy, the weights it had, and the steps it was trained for."""
    try:
        data, weights, _ = load_from_zip_file(path, device="cpu")
        for name in ("observation_space", "action_space", "policy_class", "policy_kwargs", "num_timesteps"):
            require(data is not None and name in data, f"it does not say its {name}")
        assert data is not None
        require("policy" in weights, "it holds no policy.pth")
        keywords = {**data["policy_kwargs"], **({"use_sde": True} if data.get("use_sde") else {})}
        with torch.random.fork_rng(devices=[]):
            network = data["policy_class"](data["observation_space"], data["action_space"], lambda _: 0.0, **keywords)
        return network, weights["policy"], int(data["num_timesteps"])
    except Exception as error:  # unpickling a foreign file can fail in any way
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}, "
        raise Refused(f"{path} is no model of SB3: {kind}{one_line(error)}") from None


def fill(network: BasePolicy, weights: Any, path: Path) -> None:
    """Load the weights into a policy; refuse those that do not fit."""
    try:
        network.load_state_dict(weights)
    except (RuntimeError, TypeError) as error:
        raise Refused(f"the weights in {path} do not fit its policy: {one_line(error)}") from None
    network.set_training_mode(False)

"""The normalisation that an SB3 model was trained with, read from a file of its own: ours, or SB3's VecNormalize."""

import pickle
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from geonpg.envs import Normalize
from geonpg.errors import Refused, require

KINDS = "an .npz of geonpg's Normalize, or what SB3's VecNormalize saved"
# All that a pickle may construct; none of it runs code of the file's choosing.
PLAIN = {
    "numpy": ("dtype", "ndarray"),
    "numpy.core.multiarray": ("_reconstruct", "scalar"),  # as numpy 1 has it
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.numeric": ("_frombuffer",),
    "numpy._core.numeric": ("_frombuffer",),
    "collections": ("OrderedDict",),
}


class Inert:
    """A stand-in for an object that a pickle asks for: it holds the object's attributes and does nothing."""

    def __new__(cls, *arguments: Any, **keywords: Any) -> "Inert":
        return super().__new__(cls)

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        """Keep the attributes of the object that was pickled."""
        if isinstance(state, dict):
            vars(self).update(state)


class Unpickler(pickle.Unpickler):
    """A reader of arrays and plain values: whatever else a file names is replaced by `Inert`, not imported."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the class if it is in PLAIN, and an inert one of its name otherwise."""
        return super().find_class(module, name) if name in PLAIN.get(module, ()) else type(name, (Inert,), {})


def load_normalization(path: Path, venv: VecEnv) -> Normalize:
    """Normalise the observations of `venv` as the file says, with statistics that stand still."""
    require(path.is_file(), f"{path} does not exist: name {KINDS}")
    normalized = Normalize.load(path, venv) if is_zipfile(path) else from_sb3(path, venv)
    normalized.training = False
    return normalized


def from_sb3(path: Path, venv: VecEnv) -> Normalize:
    """Make a Normalize equal to the VecNormalize that was saved there, of which nothing is run."""
    try:
        with path.open("rb") as file:
            saved = vars(Unpickler(file).load())
        if not saved["norm_obs"]:
            return Normalize(venv, observations=False, rewards=False)
        clip, epsilon, kept = float(saved["clip_obs"]), float(saved["epsilon"]), vars(saved["obs_rms"])
        mean, variance = (np.asarray(kept[name], dtype=np.float64) for name in ("mean", "var"))
    except Exception as error:  # a foreign file can fail in any way
        reason = f"{type(error).__name__}: {error}"
        raise Refused(f"{path} holds no statistics of vectors ({reason}): name {KINDS}") from None
    normalized = Normalize(venv, rewards=False, clip=clip, epsilon=epsilon)
    normalized.observation_space = venv.observation_space  # which VecNormalize leaves as it is
    moments = normalized.observation_moments
    require(
        mean.shape == variance.shape == moments.mean.shape,
        f"{path} has statistics of {mean.size} numbers, not of {moments.mean.size}",
    )
    moments.set_state({"count": 1, "mean": mean, "squares": variance})  # so that the variance is this, to the bit
    return normalized


def beside(model: Path) -> list[Path]:
    """Find files that look like the normalisation of an SB3 model: beside it, or in a folder there, as rl-zoo3 does."""
    ours = [path for path in model.parent.glob("*.npz") if is_ours(path)]
    folders = (model.parent, model.parent / model.stem)
    return sorted([*ours, *(path for folder in folders for path in folder.glob("*.pkl") if "normalize" in path.name)])


def is_ours(path: Path) -> bool:
    """Whether an .npz was saved by `Normalize`, and not by an EvalCallback, say."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            return "observation_moments.mean" in kept
    except (OSError, ValueError, EOFError, BadZipFile):
        return False

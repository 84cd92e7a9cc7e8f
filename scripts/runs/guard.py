"""A wrapper between a user's environment and everything else, which reports the environment's faults by its id."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path
from types import TracebackType
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from geonpg.envs import quietly
from geonpg.envs.spaces import one_line
from geonpg.envs.wrappers import restore, state_of
from geonpg.errors import Refused
from geonpg.finite import Array, BrokenEnvironment, check_finals, check_finite

HOUSE = Path(__file__).resolve().parents[2]
GYMNASIUM = Path(gymnasium.__file__).parent
# Folders of code that calls environments; gymnasium's own environments lie in sub-folders of gymnasium/envs.
CALLERS = (Path(stable_baselines3.__file__).parent, *(HOUSE / room for room in ("scripts", "agents", "envs")))


class Guarded(VecEnvWrapper):
    """Names the environment in every complaint about it: one that raises an error, or returns NaN or infinity.

    Normalize and the agent check numbers too, but know no id; baselines and evaluations may have neither.
    """

    def __init__(self, venv: VecEnv, env_id: str) -> None:
        super().__init__(venv)
        self.name = f" of {env_id}"

    def reset(self) -> VecEnvObs:
        """Reset the environments; raise BrokenEnvironment in the name of one that fails."""
        with self.blaming():
            observations = self.venv.reset()
        check_finite(observations, of=self.name)
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        """Step the environments; raise BrokenEnvironment in the name of one that fails."""
        with self.blaming(), np.errstate(over="ignore"):  # of a reward that float32 does not hold, which comes next
            observations, rewards, dones, infos = self.venv.step_wait()
        check_finite(observations, self.as_returned(rewards, dones, infos), self.name)
        check_finals(dones, infos, self.name)
        return observations, rewards, dones, infos

    def as_returned(self, rewards: Array, dones: Array, infos: list[dict[str, Any]]) -> Array:
        """Return rewards as they were before SB3 stored them as float32, from what its Monitor has kept."""
        if not np.isinf(rewards).any():
            return rewards
        rewards = rewards.astype(np.float64)
        for i in np.flatnonzero(np.isinf(rewards)).tolist():
            rewards[i] = infos[i]["episode"]["r"] if dones[i] else self.get_attr("rewards", indices=[i])[0][-1]
        return rewards

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Turn an exception into BrokenEnvironment, with the environment's own frames."""
        try:
            yield
        except Exception as error:  # an environment may raise anything
            index = index_of(error.__traceback__)
            who = f"an environment{self.name}" if index is None else f"environment {index}{self.name}"
            frames = "".join(traceback.format_list(own_frames(error)))
            raise BrokenEnvironment(f"{who} raised {described(error)}", frames) from error

    def get_state(self) -> dict[str, Any]:
        """Return the state of the environments, if they have one."""
        return {"venv": state_of(self.venv)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state()`."""
        restore(self.venv, state["venv"])


def described(error: Exception) -> str:
    """Describe an error in one line, by its class and message."""
    return f"{type(error).__name__}: {one_line(error)}".rstrip(": ")


def index_of(trace: TracebackType | None) -> int | None:
    """Find the index of the environment that SB3 was stepping or resetting; None if it cannot be told."""
    for frame, _ in traceback.walk_tb(trace):
        if isinstance(frame.f_locals.get("self"), DummyVecEnv) and "env_idx" in frame.f_locals:
            return int(frame.f_locals["env_idx"])
    return None


def own_frames(error: Exception) -> list[traceback.FrameSummary]:
    """Return the frames of an exception that lie in the environment's own code; empty if none does."""
    return list(dropwhile(lambda frame: is_caller(Path(frame.filename)), traceback.extract_tb(error.__traceback__)))


def is_caller(file: Path) -> bool:
    """Return whether a file calls environments and holds none: SB3's, ours, or gymnasium's outside of its tasks."""
    environments = GYMNASIUM / "envs"
    if file.is_relative_to(GYMNASIUM):
        return not file.is_relative_to(environments) or file.parent == environments
    called = any(file.is_relative_to(folder) for folder in CALLERS)
    # the zoo, where somebody has imported it, wraps every environment in a time limit of its own
    return called or file.name == "contextlib.py" or file.parent.name == "rl_zoo3"


@contextmanager
def making(env_id: str) -> Iterator[None]:
    """Raise Refused with the environment's id and the reason if it cannot be made in here."""
    try:
        with quietly():
            yield
    except (gymnasium.error.Error, ImportError) as error:
        missing = isinstance(error, ImportError) and env_id.startswith("ale_py:")
        cure = " (pip install ale-py)" if missing else ""
        raise Refused(f"environment {env_id!r} cannot be made: {one_line(error)}{cure}") from None
    except Exception as error:  # an environment's own code may raise anything
        if isinstance(error, Refused) and is_caller(Path(traceback.extract_tb(error.__traceback__)[-1].filename)):
            raise  # ours, perhaps of a robot that a module registers, and says itself what is wrong
        own = own_frames(error)
        where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
        raise Refused(f"environment {env_id!r} cannot be made: {described(error)}{where}") from error

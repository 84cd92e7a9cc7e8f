"""Stands between a user's environment and everything else: what it does wrong is said in its own name."""

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
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from geonpg.envs import quietly
from geonpg.envs.spaces import one_line
from geonpg.envs.wrappers import restore, state_of
from geonpg.errors import Refused
from geonpg.finite import BrokenEnvironment, check_finite

HOUSE = Path(__file__).resolve().parents[2]
GYMNASIUM = Path(gymnasium.__file__).parent
# Whose code calls an environment and is not one; gymnasium's own environments lie in folders of gymnasium/envs.
CALLERS = (Path(stable_baselines3.__file__).parent, *(HOUSE / room for room in ("scripts", "agents", "envs")))


class Guarded(VecEnvWrapper):
    """Names the environment that raises an error, or returns what is not a number: later it could not be told whose.

    Normalisation would spread the one to all, and the other would end in forty lines of everybody's code.
    """

    def __init__(self, venv: VecEnv, env_id: str) -> None:
        super().__init__(venv)
        self.name = f" of {env_id}"

    def reset(self) -> Any:
        with self.blaming():
            observations = self.venv.reset()
        check_finite(observations, np.zeros(self.num_envs), self.name)
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        with self.blaming(), np.errstate(over="ignore"):  # of a reward that float32 does not hold, which comes next
            observations, rewards, dones, infos = self.venv.step_wait()
        check_finite(observations, self.as_returned(rewards, dones, infos), self.name)
        return observations, rewards, dones, infos

    def as_returned(self, rewards: Any, dones: Any, infos: Any) -> Any:
        """Rewards before SB3 has made float32 of them, where they are infinite now: those that its Monitor has kept."""
        if not np.isinf(rewards).any():
            return rewards
        rewards = rewards.astype(np.float64)
        for i in np.flatnonzero(np.isinf(rewards)).tolist():
            rewards[i] = infos[i]["episode"]["r"] if dones[i] else self.get_attr("rewards", indices=[i])[0][-1]
        return rewards

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Inside, an exception becomes BrokenEnvironment, with the environment's own frames."""
        try:
            yield
        except Exception as error:  # anything may happen in there
            index = index_of(error.__traceback__)
            who = f"an environment{self.name}" if index is None else f"environment {index}{self.name}"
            frames = "".join(traceback.format_list(own_frames(error)))
            raise BrokenEnvironment(f"{who} raised {described(error)}", frames) from error

    def get_state(self) -> dict[str, Any]:
        return {"venv": state_of(self.venv)}

    def set_state(self, state: dict[str, Any]) -> None:
        restore(self.venv, state["venv"])


def described(error: Exception) -> str:
    """The kind of an error and what it says, in one line."""
    return f"{type(error).__name__}: {one_line(error)}".rstrip(": ")


def index_of(trace: TracebackType | None) -> int | None:
    """Which of its environments SB3 was at."""
    for frame, _ in traceback.walk_tb(trace):
        if isinstance(frame.f_locals.get("self"), DummyVecEnv) and "env_idx" in frame.f_locals:
            return int(frame.f_locals["env_idx"])
    return None


def own_frames(error: Exception) -> list[traceback.FrameSummary]:
    """Where an exception came from, without those who called the environment; nothing if it did not come from there."""
    return list(dropwhile(lambda frame: is_caller(Path(frame.filename)), traceback.extract_tb(error.__traceback__)))


def is_caller(file: Path) -> bool:
    environments = GYMNASIUM / "envs"
    if file.is_relative_to(GYMNASIUM):
        return not file.is_relative_to(environments) or file.parent == environments
    called = any(file.is_relative_to(folder) for folder in CALLERS)
    # the zoo, where somebody has imported it, wraps every environment in a time limit of its own
    return called or file.name == "contextlib.py" or file.parent.name == "rl_zoo3"


@contextmanager
def making(env_id: str) -> Iterator[None]:
    """Inside, an environment is made: one that cannot be is named, with the reason."""
    try:
        with quietly():
            yield
    except (gymnasium.error.Error, ImportError) as error:
        missing = isinstance(error, ImportError) and env_id.startswith("ale_py:")
        cure = " (pip install ale-py)" if missing else ""
        raise Refused(f"environment {env_id!r} cannot be made: {one_line(error)}{cure}") from None
    except Exception as error:  # an environment's own code may raise anything
        own = own_frames(error)
        if isinstance(error, Refused) and not own:  # ours, and says itself what is wrong
            raise
        where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
        raise Refused(f"environment {env_id!r} cannot be made: {described(error)}{where}") from error

"""How contestants train by the clock, each in a process of its own.

What is done once and not timed, imports and compilation, comes first (`warm_up`). Everything else, from making the
environments to the last update, is timed (`train`).
"""

import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from geonpg.agents.stepping import Stepper
from geonpg.configs import load
from geonpg.kfac import ALONE
from geonpg.scripts.races.clock import Trained
from geonpg.scripts.races.contestants import METHOD, OURS, PRESET, RLTOOLS
from geonpg.scripts.races.rltools_process import RLtools
from geonpg.scripts.runs import baseline_settings as zoo
from geonpg.scripts.runs.baseline_plan import complete_config, make_baseline, run_settings
from geonpg.scripts.runs.building import RAW, make_env, normalization_of, silence
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.process import cores, prepare

Left = Callable[[Trained], float]  # the share of the race that is left, given what has been trained

WARM_STEPS = 200  # of a throw-away agent; those who make rollouts make one
WARM_UPDATES = 3  # of ours
THREAD_ROUNDS = 2  # to find out how many threads suit an algorithm


class Racer(ABC):
    """A contestant on a task with a seed."""

    def __init__(self, env_id: str, seed: int) -> None:
        self.env_id, self.seed = env_id, seed
        self.elsewhere = 0.0  # CPU seconds of a process of its own

    @abstractmethod
    def warm_up(self) -> dict[str, Any]:
        """Do what is not timed: compile, and choose numbers of threads; return what was chosen."""

    @abstractmethod
    def train(self, left: Left) -> None:
        """Make environments and agent, and train until nothing is left."""


class OurRacer(Racer):
    """Our agent, whose steps are annealed over the time of the race."""

    def __init__(self, env_id: str, seed: int) -> None:
        super().__init__(env_id, seed)
        self.plan = OurPlan(env_id, seed, load(PRESET, env_id, {"method": METHOD}), PRESET)

    def warm_up(self) -> dict[str, Any]:
        settings = self.plan.settings
        prepare(settings)
        env, agent = self.plan.make(ALONE)
        silence(agent)
        agent.learn(WARM_UPDATES * settings.n_envs * settings.n_steps)
        env.close()
        return {"torch_threads": settings.torch_threads}

    def train(self, left: Left) -> None:
        env, agent = self.plan.make(ALONE)
        silence(agent)
        settings, normalization = self.plan.settings, normalization_of(env)
        Stepper(agent, sys.maxsize).run(lambda: left(Trained(agent, agent.num_timesteps, settings, normalization)))
        env.close()


class Check(BaseCallback):
    """Ends a training when nothing is left; it asks after every step."""

    def __init__(self, left: Callable[[], float]) -> None:
        super().__init__()
        self.left = left

    def _on_step(self) -> bool:
        return self.left() > 0


class BaselineRacer(Racer):
    """An algorithm of SB3's, sb3-contrib's or SBX's, in environments like ours."""

    def __init__(self, env_id: str, seed: int, algorithm: str) -> None:
        super().__init__(env_id, seed)
        self.config = complete_config(algorithm, zoo.settings_for(env_id), env_id, {})

    def warm_up(self) -> dict[str, Any]:
        is_jax = self.config["algorithm"].startswith("sbx-")
        if is_jax:
            self.compiled = tempfile.TemporaryDirectory(prefix="geonpg-jax-")
            keep_compiled(self.compiled.name)
        sooner = {"learning_starts": WARM_STEPS // 2} if "learning_starts" in self.config else {}
        env, agent = make_baseline(self.env_id, self.seed, {**self.config, **sooner})
        silence(agent)
        agent.learn(WARM_STEPS)
        chosen = {} if is_jax else {"torch_threads": best_threads(agent)}
        env.close()
        return chosen

    def train(self, left: Left) -> None:
        env, agent = make_baseline(self.env_id, self.seed, self.config)
        silence(agent)
        settings, normalization = run_settings(self.config), normalization_of(env)
        check = Check(lambda: left(Trained(agent, agent.num_timesteps, settings, normalization)))
        agent.learn(sys.maxsize, callback=check)
        env.close()


def keep_compiled(folder: str) -> None:
    """Let JAX find in a folder what it has compiled for another agent of the same sizes."""
    import jax

    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def best_threads(agent: BaseAlgorithm) -> int:
    """Set torch's threads to one or to one per core, whichever trains this agent faster; return their number."""
    seconds: dict[int, list[float]] = {number: [] for number in (1, cores())}
    for _ in range(THREAD_ROUNDS if len(seconds) > 1 else 0):
        for number, found in seconds.items():
            torch.set_num_threads(number)
            start = time.perf_counter()
            agent.learn(WARM_STEPS, reset_num_timesteps=False)
            found.append(time.perf_counter() - start)
    best = min(seconds, key=lambda number: min(seconds[number], default=0.0))
    torch.set_num_threads(best)
    return best


class RLtoolsRacer(Racer):
    """RLtools' PPO, whose process trains between two looks at the clock, an update at a time."""

    def __init__(self, env_id: str, seed: int) -> None:
        super().__init__(env_id, seed)
        with_bounds = make_env(RAW, env_id, 1, seed)
        assert isinstance(with_bounds.action_space, spaces.Box)
        self.low, self.high = with_bounds.action_space.low, with_bounds.action_space.high
        with_bounds.close()

    def warm_up(self) -> dict[str, Any]:
        self.compiled = tempfile.TemporaryDirectory(prefix="geonpg-rltools-")
        self.process = RLtools(self.env_id, self.compiled.name, self.seed)
        self.process.begin()
        self.process.train(1)
        self.elsewhere = self.process.cpu
        return {}

    def train(self, left: Left) -> None:
        steps = 0
        try:
            self.process.begin()
            while left(Trained(self, steps, RAW)) > 0:
                steps += self.process.train(1)
                self.elsewhere = self.process.cpu
        finally:
            self.process.close()

    def predict(
        self,
        observation: NDArray[Any] | dict[str, NDArray[Any]],
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], tuple[NDArray[Any], ...] | None]:
        """Return the policy's deterministic actions, within the task's bounds; the form is SB3's."""
        assert isinstance(observation, np.ndarray)
        assert deterministic
        actions = np.clip(self.process.act(observation.tolist()), -1, 1)
        return (self.low + (actions + 1) / 2 * (self.high - self.low)).astype(np.float32), None


def racer_of(contestant: str, env_id: str, seed: int) -> Racer:
    """Return the racer of a contestant."""
    if contestant == OURS:
        return OurRacer(env_id, seed)
    return RLtoolsRacer(env_id, seed) if contestant == RLTOOLS else BaselineRacer(env_id, seed, contestant)

"""Where the time of our training goes: phases, the kernel that environments' threads share, and what they do not."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from geonpg.agents import ACKTR
from geonpg.configs import Settings
from geonpg.envs import MujocoVecEnv
from geonpg.scripts.benches.ours import native_env, train_more
from geonpg.scripts.runs.process import prepare

PHASES = ("rollout", "values", "policy", "critic")


@dataclass
class Watch:
    """What calls of the simulations' kernel have taken so far."""

    calls: int = 0
    seconds: float = 0.0  # by the wall clock
    cpu_seconds: float = 0.0  # of the calling thread, which is all of it where the environments have one thread


@dataclass(frozen=True)
class Segment:
    """Some training, and what it took in seconds."""

    steps: int  # of single environments
    updates: int
    seconds: float
    phases: Mapping[str, float]
    kernel: Watch

    @property
    def shares(self) -> dict[str, float]:
        """Parts of the time. Physics, all that the kernel does, is a part of the rollout.

        The others add up to one, or to more where the critic is fitted beside a rollout.
        """
        parts = {name: self.phases[name] / self.seconds for name in PHASES}
        other = max(0.0, 1 - sum(parts.values()))
        return parts | {"other": other, "physics": self.kernel.seconds / self.seconds}

    @property
    def update_ms(self) -> float:
        """Milliseconds of an iteration that are not the rollout."""
        return 1e3 * (self.seconds - self.phases["rollout"]) / self.updates

    @property
    def serial_us(self) -> float:
        """Microseconds per step that do not shrink with more cores: all but the kernel."""
        return 1e6 * (self.seconds - self.kernel.seconds) / self.steps

    @property
    def is_overlapping(self) -> bool:
        """Whether phases run beside one another; otherwise they cannot take longer than the whole."""
        return sum(self.phases.values()) > self.seconds


@contextmanager
def watching_physics(env: MujocoVecEnv) -> Iterator[Watch]:
    """Yield a watch that adds up what every call of the simulations' kernel takes."""
    watch, simulations = Watch(), vars(env.simulations)
    run = env.simulations._run

    def timed(*arguments: Any) -> None:
        start, cpu = time.perf_counter(), time.thread_time()
        run(*arguments)
        watch.seconds += time.perf_counter() - start
        watch.cpu_seconds += time.thread_time() - cpu
        watch.calls += 1

    simulations["_run"] = timed  # hides the method of that name
    try:
        yield watch
    finally:
        del simulations["_run"]


def breakdown(agent: ACKTR, settings: Settings, updates: int) -> Segment:
    """Measure where the time goes, in a segment of its own, because the watch takes time too."""
    prepare(settings)
    agent.seconds.clear()
    with watching_physics(native_env(agent)) as kernel:
        start = time.perf_counter()
        steps = train_more(agent, updates * settings.n_envs * settings.n_steps)
        seconds = time.perf_counter() - start
    return Segment(steps, updates, seconds, dict(agent.seconds), kernel)

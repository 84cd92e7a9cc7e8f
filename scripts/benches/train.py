"""Environment steps per second of whole training: ours by method, PPO, A2C and TRPO, and the limit that MuJoCo sets.

Ours train as `geonpg train` does with the default preset, without evaluations and files. The others are what SB3 and
sb3-contrib make of an id, given nothing but a seed. The limit is that of `geonpg bench envs`, with as many
environments as the preset has. Everyone keeps training one agent from round to round, so this is early training.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger

from geonpg.agents import ACKTR
from geonpg.configs import METHODS, Settings, load
from geonpg.envs import MujocoVecEnv, quietly
from geonpg.scripts.benches.contest import CORES, Contestant, medians, speeds_by_round
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.benches.limit import draw_actions, limit_contestant, native
from geonpg.scripts.runs.building import make_agent, make_env
from geonpg.scripts.runs.process import prepare

ENV_IDS, ROUNDS, SEED = ("HalfCheetah-v4", "Walker2d-v4"), 7, 0
UPDATES = 10  # of ours per segment, as many as from one line of the log to the next
LIMIT_STEPS = 250  # of each environment per segment
SB3_STEPS = 1000  # per segment; PPO and TRPO make it their rollout of 2048, with all that they do on it
THREAD_ROUNDS = 2  # to find out how many threads suit an algorithm of SB3
BREAKDOWN_UPDATES = 30
PHASES = ("rollout", "values", "policy", "critic")
INSTALL = 'pip install "sb3-contrib>=2.9,<2.10"'

Algorithm = Callable[..., BaseAlgorithm]


@dataclass(frozen=True)
class TrainingSpeeds:
    """Environment steps per second on one id, and where our time goes."""

    rounds: Mapping[str, Sequence[float]]  # contestant -> one per round
    shares: Mapping[str, float]  # of `geo`'s time, by phase

    @property
    def rivals(self) -> list[str]:
        """Everyone but our own methods."""
        return [name for name in self.rounds if name not in METHODS]

    def ratio(self, a: str, b: str) -> float:
        """Median of the ratios within a round, in which the machine is nearly the same for everyone."""
        return statistics.median(x / y for x, y in zip(self.rounds[a], self.rounds[b], strict=True))

    def numbers(self) -> Numbers:
        """Return ratios, shares and speeds."""
        pairs = [(method, rival) for method in METHODS for rival in self.rivals] + [("geo", "ng")]
        found = {f"{a}_over_{b}": self.ratio(a, b) for a, b in pairs}
        found |= {f"share_{name}": share for name, share in self.shares.items()}
        return found | {f"{name}_steps_per_second": speed for name, speed in medians(self.rounds).items()}

    def lines(self, title: str) -> list[str]:
        """Return this id's part of the table, fastest first."""
        lines = ["", f"{title:16}{'steps/s':>10}" + "".join(f"{'x ' + name:>12}" for name in self.rivals)]
        for name, speed in sorted(medians(self.rounds).items(), key=lambda item: -item[1]):
            over = "".join(f"{self.ratio(name, rival):12.3f}" for rival in self.rivals if name in METHODS)
            lines.append(f"{name:16}{speed:10.0f}{over}")
        shares = {name: f"{name} {share:.3f}" for name, share in self.shares.items()}
        shares["rollout"] += f" (with {shares.pop('physics')})"
        return [*lines, f"geo over ng {self.ratio('geo', 'ng'):.3f}", f"geo's time: {', '.join(shares.values())}"]


@dataclass(frozen=True)
class TrainFindings(Findings):
    """Speeds by id, and how many threads of torch's each of SB3's algorithms was given."""

    threads: Mapping[str, int]
    speeds: Mapping[str, TrainingSpeeds]

    def numbers(self) -> Numbers:
        threads = {f"{name}_threads": number for name, number in self.threads.items()}
        return {"train": {**threads, **{env_id: speeds.numbers() for env_id, speeds in self.speeds.items()}}}

    def table(self) -> str:
        settings = settings_of(ENV_IDS[0])
        threads = ", ".join(f"{name} {number}" for name, number in self.threads.items())
        ours = f"default preset, {settings.n_envs} environments, {settings.torch_threads} thread of torch's"
        lines = [f"whole training on {CORES} cores, medians of {ROUNDS} interleaved rounds", f"ours: {ours}"]
        lines.append(f"SB3's: their defaults, 1 environment, torch's threads as suits them best: {threads}")
        return "\n".join([*lines, *(line for env_id, found in self.speeds.items() for line in found.lines(env_id))])


def settings_of(env_id: str, method: str = "geo") -> Settings:
    """Load the default preset without annealing, which costs no time and would start anew with every segment."""
    return load("default", env_id, {"method": method, "anneal": False})


def our_agent(env_id: str, method: str, stack: ExitStack) -> ACKTR:
    """Make our agent as `geonpg train` does."""
    settings = settings_of(env_id, method)
    env = make_env(settings, env_id, settings.n_envs, SEED)
    stack.callback(env.close)
    agent = make_agent(settings, env, SEED)
    silence(agent)
    return agent


def their_agent(algorithm: Algorithm, env_id: str, stack: ExitStack) -> BaseAlgorithm:
    """Make an agent of SB3's with its defaults."""
    with quietly():
        agent = algorithm("MlpPolicy", env_id, seed=SEED)
    silence(agent)
    env = agent.get_env()
    assert env is not None
    stack.callback(env.close)
    return agent


def silence(agent: BaseAlgorithm) -> None:
    """Give the agent a logger that writes nothing: without one, every call of `learn` makes a folder."""
    agent.set_logger(Logger(folder=None, output_formats=[]))


def algorithms() -> dict[str, Algorithm]:
    """Return the algorithms that are installed."""
    found: dict[str, Algorithm] = {"sb3_ppo": PPO, "sb3_a2c": A2C}
    try:
        found["sb3_trpo"] = import_module("sb3_contrib").TRPO
    except ImportError as error:
        print(f"TRPO is left out: {error} ({INSTALL})", file=sys.stderr)
    return found


def train_more(agent: BaseAlgorithm, steps: int) -> int:
    """Train for `steps` or, in whole rollouts, a few more; return how many they were."""
    before = agent.num_timesteps
    agent.learn(steps, reset_num_timesteps=False)
    return agent.num_timesteps - before


def our_contestant(agent: ACKTR, settings: Settings) -> Contestant:
    """Make our agent a contestant, with the preset's number of threads."""
    steps = UPDATES * settings.n_envs * settings.n_steps
    return Contestant(partial(prepare, settings), partial(train_more, agent, steps))


def their_contestant(agent: BaseAlgorithm, threads: int) -> Contestant:
    """Make an agent of SB3's a contestant, with so many threads of torch's."""
    return Contestant(partial(torch.set_num_threads, threads), partial(train_more, agent, SB3_STEPS))


def best_threads(algorithm: Algorithm, choices: set[int], title: str) -> int:
    """Find the number of torch's threads with which an algorithm is fastest on the first id."""
    if len(choices) == 1:
        return min(choices)
    with ExitStack() as stack:
        agent = their_agent(algorithm, ENV_IDS[0], stack)
        entries = {str(number): their_contestant(agent, number) for number in choices}
        speeds = medians(speeds_by_round(entries, THREAD_ROUNDS, title))
    return max(choices, key=lambda number: speeds[str(number)])


@contextmanager
def keeping_threads() -> Iterator[int]:
    """Yield torch's number of threads, and restore it afterwards."""
    number = torch.get_num_threads()
    try:
        yield number
    finally:
        torch.set_num_threads(number)


# where the time goes


@contextmanager
def watching_physics(env: MujocoVecEnv) -> Iterator[list[float]]:
    """Yield a list to which every step of MuJoCo's adds its seconds."""
    seconds: list[float] = []
    batch: Any = env.batch
    step = batch.step

    def timed(**keywords: Any) -> None:
        start = time.perf_counter()
        step(**keywords)
        seconds.append(time.perf_counter() - start)

    batch.step = timed  # hides the method of that name
    try:
        yield seconds
    finally:
        del batch.step


def shares(phases: Mapping[str, float], physics: float, total: float) -> dict[str, float]:
    """Return parts of the total. Physics is a part of the rollout; the others, rollout included, add up to one."""
    parts = {name: phases[name] / total for name in PHASES}
    return parts | {"other": 1 - sum(parts.values()), "physics": physics / total}


def breakdown(agent: ACKTR, settings: Settings) -> dict[str, float]:
    """Measure where the time goes, in a segment of its own, because the watch takes time too."""
    prepare(settings)
    agent.seconds.clear()
    env = agent.get_env()
    assert env is not None
    assert isinstance(env.unwrapped, MujocoVecEnv)
    with watching_physics(env.unwrapped) as physics:
        start = time.perf_counter()
        train_more(agent, BREAKDOWN_UPDATES * settings.n_envs * settings.n_steps)
        total = time.perf_counter() - start
    return shares(agent.seconds, sum(physics), total)


# the measurement


def measure_one(env_id: str, rivals: Mapping[str, Algorithm], threads: Mapping[str, int]) -> TrainingSpeeds:
    """Measure everyone on one id."""
    settings = settings_of(env_id)
    with ExitStack() as stack:
        physics = native(env_id, settings.n_envs)
        stack.callback(physics.close)
        ours = {method: our_agent(env_id, method, stack) for method in METHODS}
        entries = {"limit": limit_contestant(physics, draw_actions(physics, LIMIT_STEPS), stack)}
        entries |= {method: our_contestant(agent, settings) for method, agent in ours.items()}
        for name, algorithm in rivals.items():
            entries[name] = their_contestant(their_agent(algorithm, env_id, stack), threads[name])
        return TrainingSpeeds(speeds_by_round(entries, ROUNDS, env_id), breakdown(ours["geo"], settings))


def measure() -> TrainFindings:
    """Find out how many threads suit the others; then measure everyone on every id."""
    rivals = algorithms()
    with keeping_threads() as number:
        threads = {name: best_threads(make, {1, number}, f"threads of {name}") for name, make in rivals.items()}
        return TrainFindings(threads, {env_id: measure_one(env_id, rivals, threads) for env_id in ENV_IDS})

"""Environment steps per second of whole training: ours by method, PPO, A2C and TRPO, and the limit that MuJoCo sets.

Ours train as `geonpg train` does with the default preset, without evaluations and files. The others are what SB3,
sb3-contrib and RLtools make of an id, given nothing but a seed. The limit is that of `geonpg bench envs`, with as many
environments as the preset has. Everyone keeps training one agent from round to round, so this is early training.
CPU time is that of all threads of whoever trains; RLtools' PPO runs in one, in a process of its own.
"""

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.agents import ACKTR
from geonpg.configs import METHODS, Settings
from geonpg.envs import quietly
from geonpg.scripts.benches import rltools_ppo
from geonpg.scripts.benches.breakdown import Segment, breakdown
from geonpg.scripts.benches.contest import CORES, Contestant, Speeds, medians, speeds_by_round
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.benches.limit import draw_actions, limit_contestant, native, native_ids
from geonpg.scripts.benches.ours import SEED, our_agent, settings_of, train_more
from geonpg.scripts.runs.building import silence
from geonpg.scripts.runs.process import prepare

ENV_IDS, ROUNDS = ("HalfCheetah-v4", "Walker2d-v4"), 7
UPDATES = 10  # of ours per segment, as many as from one line of the log to the next
LARGE, LARGE_UPDATES = "large_geo", 3  # `geo` with the preset `large`, and its updates per segment
LIMIT_STEPS = 250  # of each environment per segment
SB3_STEPS = 1000  # per segment; PPO and TRPO make it their rollout of 2048, with all that they do on it
THREAD_ROUNDS = 2  # to find out how many threads suit an algorithm of SB3
BREAKDOWN_UPDATES = 30
INSTALL = 'pip install "sb3-contrib>=2.9,<2.10"'

Algorithm = Callable[..., BaseAlgorithm]


@dataclass(frozen=True)
class TrainingSpeeds:
    """Environment steps per second on one id, and where our time goes."""

    speeds: Speeds
    segment: Segment  # of `geo`'s training

    @property
    def rivals(self) -> list[str]:
        """Everyone but our own methods."""
        return [name for name in self.speeds.per_second if name not in (*METHODS, LARGE)]

    def ratio(self, a: str, b: str, by_cpu: bool = False) -> float:
        """Median of the ratios within a round, in which the machine is nearly the same for everyone."""
        rounds = self.speeds.per_cpu_second if by_cpu else self.speeds.per_second
        return statistics.median(x / y for x, y in zip(rounds[a], rounds[b], strict=True))

    def cpu_ratios(self) -> dict[str, float]:
        """How many times as many steps `geo` makes of a CPU-second as everyone else who trains."""
        return {name: self.ratio("geo", name, by_cpu=True) for name in self.rivals if name != "limit"}

    def numbers(self) -> Numbers:
        """Return ratios, shares, parts of an iteration, and speeds."""
        pairs = [(method, rival) for method in METHODS for rival in self.rivals] + [("geo", "ng")]
        found = {f"{a}_over_{b}": self.ratio(a, b) for a, b in [*pairs, (LARGE, "limit"), (LARGE, "geo")]}
        found |= {f"geo_over_{name}_per_cpu_second": ratio for name, ratio in self.cpu_ratios().items()}
        found |= {f"share_{name}": share for name, share in self.segment.shares.items()}
        found |= {"update_ms": self.segment.update_ms, "serial_us": self.segment.serial_us}
        found |= {f"{name}_steps_per_second": speed for name, speed in medians(self.speeds.per_second).items()}
        by_cpu = medians(self.speeds.per_cpu_second)
        return found | {f"{name}_steps_per_cpu_second": speed for name, speed in by_cpu.items()}

    def lines(self, title: str) -> list[str]:
        """Return this id's part of the table, fastest first."""
        columns = "".join(f"{'x ' + name:>12}" for name in self.rivals)
        lines = ["", f"{title:16}{'steps/s':>10}{'/CPU-s':>10}{columns}"]
        by_cpu = medians(self.speeds.per_cpu_second)
        for name, speed in sorted(medians(self.speeds.per_second).items(), key=lambda item: -item[1]):
            ours = name in (*METHODS, LARGE)
            over = "".join(f"{self.ratio(name, rival):12.3f}" for rival in self.rivals if ours)
            lines.append(f"{name:16}{speed:10.0f}{by_cpu[name]:10.0f}{over}")
        ratios = ", ".join(f"{name} {ratio:.3f}" for name, ratio in self.cpu_ratios().items())
        lines += [f"geo over ng {self.ratio('geo', 'ng'):.3f}", f"geo by CPU-second over {ratios}"]
        shares = {name: f"{name} {share:.3f}" for name, share in self.segment.shares.items()}
        shares["rollout"] += f" (with {shares.pop('physics')})"
        parts = f"update {self.segment.update_ms:.1f} ms, serial {self.segment.serial_us:.1f} us per step"
        return [*lines, f"geo's time: {', '.join(shares.values())}", f"geo's iteration: {parts}"]


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
        lines.append("RLtools' PPO, where it takes part: its defaults, gymnasium's environments, MKL, 1 thread")
        lines.append(f"{LARGE}: preset large, {LARGE_UPDATES} updates at a time")
        return "\n".join([*lines, *(line for env_id, found in self.speeds.items() for line in found.lines(env_id))])


def their_agent(algorithm: Algorithm, env_id: str, stack: ExitStack) -> BaseAlgorithm:
    """Make an agent of SB3's with its defaults."""
    with quietly():
        agent = algorithm("MlpPolicy", env_id, seed=SEED)
    silence(agent)
    env = agent.get_env()
    assert env is not None
    stack.callback(env.close)
    return agent


def algorithms() -> dict[str, Algorithm]:
    """Return the algorithms that are installed."""
    found: dict[str, Algorithm] = {"sb3_ppo": PPO, "sb3_a2c": A2C}
    try:
        found["sb3_trpo"] = import_module("sb3_contrib").TRPO
    except ImportError as error:
        print(f"TRPO is left out: {error} ({INSTALL})", file=sys.stderr)
    return found


def our_contestant(agent: ACKTR, settings: Settings, updates: int = UPDATES) -> Contestant:
    """Make our agent a contestant, with the preset's number of threads."""
    steps = updates * settings.n_envs * settings.n_steps
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
        speeds = medians(speeds_by_round(entries, THREAD_ROUNDS, title).per_second)
    return max(choices, key=lambda number: speeds[str(number)])


@contextmanager
def keeping_threads() -> Iterator[int]:
    """Yield torch's number of threads, and restore it afterwards."""
    number = torch.get_num_threads()
    try:
        yield number
    finally:
        torch.set_num_threads(number)


# the measurement


def contestants(
    env_id: str,
    ours: Mapping[str, ACKTR],
    rivals: Mapping[str, Algorithm],
    threads: Mapping[str, int],
    stack: ExitStack,
) -> dict[str, Contestant]:
    """Make the limit, our methods and SB3's algorithms contestants."""
    settings = settings_of(env_id)
    physics = native(env_id, settings.n_envs)
    stack.callback(physics.close)
    entries = {"limit": limit_contestant(physics, draw_actions(physics, LIMIT_STEPS), stack)}
    entries |= {method: our_contestant(agent, settings) for method, agent in ours.items()}
    for name, algorithm in rivals.items():
        entries[name] = their_contestant(their_agent(algorithm, env_id, stack), threads[name])
    return entries


def measure_one(
    env_id: str, rivals: Mapping[str, Algorithm], threads: Mapping[str, int], others: Mapping[str, Contestant]
) -> TrainingSpeeds:
    """Measure everyone on one id; `others` are contestants already."""
    with ExitStack() as stack:
        ours = {method: our_agent(env_id, settings_of(env_id, method), stack) for method in METHODS}
        entries = {**contestants(env_id, ours, rivals, threads, stack), **others}
        large = settings_of(env_id, preset="large")
        entries[LARGE] = our_contestant(our_agent(env_id, large, stack), large, LARGE_UPDATES)
        speeds = speeds_by_round(entries, ROUNDS, env_id)
        return TrainingSpeeds(speeds, breakdown(ours["geo"], settings_of(env_id), BREAKDOWN_UPDATES))


def measure(envs: str | None = None) -> TrainFindings:
    """Find out how many threads suit the others; then measure everyone on every id."""
    env_ids, rivals = native_ids(envs, ENV_IDS), algorithms()
    with keeping_threads() as number, ExitStack() as stack:
        rltools = rltools_ppo.start_all(env_ids, stack)
        threads = {name: best_threads(make, {1, number}, f"threads of {name}") for name, make in rivals.items()}
        found = {}
        for env_id in env_ids:
            others = {"rltools": rltools[env_id]} if rltools else {}
            found[env_id] = measure_one(env_id, rivals, threads, others)
        return TrainFindings(threads, found)

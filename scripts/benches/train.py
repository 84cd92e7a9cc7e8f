"""Environment steps per second of whole training: ours by method, PPO, A2C and TRPO, and the limit that MuJoCo sets.

Ours train as `geonpg train` does with the default preset, without evaluations and files. The others are what SB3 and
sb3-contrib make of an id, nothing but a seed given. The limit is that of `geonpg bench envs`, with as many
environments as the preset has. Everyone goes on with one agent from round to round, so this is early training.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger

from geonpg.agents import ACKTR
from geonpg.configs import Settings, load
from geonpg.envs import MujocoVecEnv, quietly
from geonpg.scripts.benches.envs import CORES, Contestant, draw_actions, limit, medians, native, speeds_by_round
from geonpg.scripts.runs.building import make_agent, make_env
from geonpg.scripts.runs.process import prepare

ENVS, METHODS, ROUNDS, SEED = ("HalfCheetah-v4", "Walker2d-v4"), ("ng", "mid", "geo", "geof"), 7, 0
UPDATES = 10  # of ours per segment, as many as from one line of the log to the next
SB3_STEPS = 1000  # per segment; PPO and TRPO make it their rollout of 2048, with all that they do on it
THREAD_ROUNDS = 2  # to find out how many threads suit an algorithm of SB3
BREAKDOWN_UPDATES = 30
PHASES = ("rollout", "values", "policy", "critic")
UNIT, INSTALL = "_steps_per_second", 'pip install "sb3-contrib>=2.9,<2.10"'

Algorithm = Callable[..., BaseAlgorithm]


def settings_of(env_id: str, method: str = "geo") -> Settings:
    """Not annealed, which costs nothing: every segment would anneal anew."""
    return load("default", env_id, {"method": method, "anneal": False})


def our_agent(env_id: str, method: str, stack: ExitStack) -> ACKTR:
    settings = settings_of(env_id, method)
    env = make_env(settings, env_id, settings.n_envs, SEED)
    stack.callback(env.close)
    agent = make_agent(settings, env, SEED)
    silence(agent)
    return agent


def their_agent(algorithm: Algorithm, env_id: str, stack: ExitStack) -> BaseAlgorithm:
    with quietly():
        agent = algorithm("MlpPolicy", env_id, seed=SEED)
    silence(agent)
    env = agent.get_env()
    assert env is not None
    stack.callback(env.close)
    return agent


def silence(agent: BaseAlgorithm) -> None:
    """Without a logger of its own, every call of `learn` makes a folder."""
    agent.set_logger(Logger(folder=None, output_formats=[]))


def algorithms() -> dict[str, Algorithm]:
    found: dict[str, Algorithm] = {"sb3_ppo": PPO, "sb3_a2c": A2C}
    try:
        found["sb3_trpo"] = import_module("sb3_contrib").TRPO
    except ImportError as error:
        print(f"TRPO is left out: {error} ({INSTALL})", file=sys.stderr)
    return found


def go_on(agent: BaseAlgorithm, steps: int) -> int:
    """Trains for `steps` or, in whole rollouts, a few more; returns how many they were."""
    before = agent.num_timesteps
    agent.learn(steps, reset_num_timesteps=False)
    return agent.num_timesteps - before


def our_contestant(agent: ACKTR, settings: Settings) -> Contestant:
    return Contestant(partial(prepare, settings), partial(go_on, agent, UPDATES * settings.n_envs * settings.n_steps))


def their_contestant(agent: BaseAlgorithm, threads: int) -> Contestant:
    return Contestant(partial(torch.set_num_threads, threads), partial(go_on, agent, SB3_STEPS))


def best_threads(algorithm: Algorithm, choices: set[int], title: str) -> int:
    """The number of torch's threads with which an algorithm is fastest, on the first id."""
    if len(choices) == 1:
        return min(choices)
    with ExitStack() as stack:
        agent = their_agent(algorithm, ENVS[0], stack)
        entries = {str(number): their_contestant(agent, number) for number in choices}
        speeds = medians(speeds_by_round(entries, THREAD_ROUNDS, title))
    return max(choices, key=lambda number: speeds[str(number)])


@contextmanager
def keeping_threads() -> Iterator[int]:
    """Afterwards torch has as many threads as before, which are those given."""
    number = torch.get_num_threads()
    try:
        yield number
    finally:
        torch.set_num_threads(number)


# where the time goes


@contextmanager
def watching_physics(env: MujocoVecEnv) -> Iterator[list[float]]:
    """Inside, the list is filled with the seconds of every step of MuJoCo's."""
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
    """Parts of the total. Physics is a part of the rollout; the others, rollout included, add up to one."""
    parts = {name: phases[name] / total for name in PHASES}
    parts |= {"other": 1 - sum(parts.values()), "physics": physics / total}
    return {f"share_{name}": part for name, part in parts.items()}


def breakdown(agent: ACKTR, settings: Settings) -> dict[str, float]:
    """Of a segment of its own, because the watch takes time too."""
    prepare(settings)
    agent.seconds.clear()
    env = agent.get_env()
    assert env is not None
    assert isinstance(env.unwrapped, MujocoVecEnv)
    with watching_physics(env.unwrapped) as physics:
        start = time.perf_counter()
        go_on(agent, BREAKDOWN_UPDATES * settings.n_envs * settings.n_steps)
        total = time.perf_counter() - start
    return shares(agent.seconds, sum(physics), total)


# the measurement


def ratios(speeds: Mapping[str, list[float]]) -> dict[str, float]:
    """Medians over rounds of the ratios within a round, in which the machine is nearly the same for everyone."""
    rivals = [name for name in speeds if name not in METHODS]
    pairs = [(method, rival) for method in METHODS for rival in rivals] + [("geo", "ng")]
    return {f"{a}_over_{b}": median_ratio(speeds[a], speeds[b]) for a, b in pairs}


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def measure_one(env_id: str, rivals: Mapping[str, Algorithm], threads: Mapping[str, int]) -> dict[str, float]:
    """Everything about one id, under names without it."""
    settings = settings_of(env_id)
    with ExitStack() as stack:
        physics = native(env_id, settings.n_envs)
        stack.callback(physics.close)
        ours = {method: our_agent(env_id, method, stack) for method in METHODS}
        entries = {"limit": limit(physics, draw_actions(physics), stack)}
        entries |= {method: our_contestant(agent, settings) for method, agent in ours.items()}
        for name, algorithm in rivals.items():
            entries[name] = their_contestant(their_agent(algorithm, env_id, stack), threads[name])
        speeds = speeds_by_round(entries, ROUNDS, env_id)
        results = ratios(speeds) | breakdown(ours["geo"], settings)
    return results | {f"{name}{UNIT}": speed for name, speed in medians(speeds).items()}


def measure() -> dict[str, float]:
    rivals = algorithms()
    with keeping_threads() as number:
        threads = {name: best_threads(make, {1, number}, f"threads of {name}") for name, make in rivals.items()}
        results = {f"train/{name}_threads": float(chosen) for name, chosen in threads.items()}
        for env_id in ENVS:
            found = measure_one(env_id, rivals, threads)
            results |= {f"train/{env_id}/{name}": value for name, value in found.items()}
    return results


def block(env_id: str, results: Mapping[str, float]) -> list[str]:
    """One id's part of the table, fastest first."""
    head = f"train/{env_id}/"
    mine = {name.removeprefix(head): value for name, value in results.items() if name.startswith(head)}
    speeds = {name.removesuffix(UNIT): value for name, value in mine.items() if name.endswith(UNIT)}
    rivals = [name for name in speeds if name not in METHODS]
    lines = ["", f"{env_id:16}{'steps/s':>10}" + "".join(f"{'x ' + name:>12}" for name in rivals)]
    for name, speed in sorted(speeds.items(), key=lambda item: -item[1]):
        over = [f"{mine[f'{name}_over_{rival}']:12.3f}" for rival in rivals if name in METHODS]
        lines.append(f"{name:16}{speed:10.0f}{''.join(over)}")
    share = {name: f"{name} {mine[f'share_{name}']:.3f}" for name in (*PHASES, "other", "physics")}
    share["rollout"] += f" (with {share.pop('physics')})"
    return [*lines, f"geo over ng {mine['geo_over_ng']:.3f}", f"geo's time: {', '.join(share.values())}"]


def table(results: Mapping[str, float]) -> str:
    settings, unit = settings_of(ENVS[0]), "_threads"
    threads = {name: value for name, value in results.items() if name.endswith(unit)}
    chosen = [f"{name.removeprefix('train/').removesuffix(unit)} {value:.0f}" for name, value in threads.items()]
    lines = [f"whole training on {CORES} cores, medians of {ROUNDS} interleaved rounds"]
    lines.append(f"ours: default preset, {settings.n_envs} environments, {settings.torch_threads} thread of torch's")
    lines.append(f"SB3's: their defaults, 1 environment, torch's threads as suits them best: {', '.join(chosen)}")
    return "\n".join([*lines, *(line for env_id in ENVS for line in block(env_id, results))])

"""Contestants of a benchmark of speed: rounds in which each runs once, in random order."""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tqdm import tqdm

from geonpg.cores import usable_cores

CORES = usable_cores()
SEED = 0  # of the order


@dataclass(frozen=True)
class Contestant:
    """One way to step environments, and how to have it start again."""

    prepare: Callable[[], object]  # goes back to the first step, untimed
    run: Callable[[], int]  # takes all steps; returns how many steps of single environments they were
    cpu: Callable[[], float] = time.process_time  # CPU seconds so far, of all threads, wherever it runs


class Speeds(NamedTuple):
    """Everyone's steps in every round: by the wall clock, and by CPU time."""

    per_second: dict[str, list[float]]
    per_cpu_second: dict[str, list[float]]


def speeds_by_round(entries: Mapping[str, Contestant], rounds: int, title: str) -> Speeds:
    """Return everyone's speeds in rounds in which each runs once, after one more round as a warm-up."""
    found = Speeds({name: [] for name in entries}, {name: [] for name in entries})
    shuffler = random.Random(SEED)  # or someone would always run right after a pool of processes
    for number in tqdm(range(rounds + 1), desc=title, leave=False, disable=None):
        for name in shuffler.sample(list(entries), len(entries)):
            entry = entries[name]
            entry.prepare()
            start, cpu = time.perf_counter(), entry.cpu()
            steps = entry.run()
            seconds, cpu_seconds = time.perf_counter() - start, entry.cpu() - cpu
            if number > 0:
                found.per_second[name].append(steps / seconds)
                found.per_cpu_second[name].append(steps / cpu_seconds)
    return found


def medians(speeds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return everyone's median over rounds."""
    return {name: statistics.median(values) for name, values in speeds.items()}

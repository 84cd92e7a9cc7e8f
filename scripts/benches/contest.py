"""Contestants of a benchmark of speed: rounds in which each runs once, in random order."""

import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tqdm import tqdm

CORES = os.cpu_count() or 1
SEED = 0  # of the order


@dataclass(frozen=True)
class Contestant:
    """One way to step environments, and how to have it start again."""

    prepare: Callable[[], object]  # goes back to the first step, untimed
    run: Callable[[], int]  # takes all steps; returns how many steps of single environments they were


def speeds_by_round(entries: Mapping[str, Contestant], rounds: int, title: str) -> dict[str, list[float]]:
    """Return everyone's steps per second in rounds in which each runs once, after one more round as a warm-up."""
    speeds: dict[str, list[float]] = {name: [] for name in entries}
    shuffler = random.Random(SEED)  # or someone would always run right after a pool of processes
    for _ in tqdm(range(rounds + 1), desc=title, leave=False, disable=None):
        for name in shuffler.sample(list(entries), len(entries)):
            entry = entries[name]
            entry.prepare()
            start = time.perf_counter()
            steps = entry.run()
            speeds[name].append(steps / (time.perf_counter() - start))
    return {name: values[1:] for name, values in speeds.items()}


def medians(speeds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return everyone's median over rounds."""
    return {name: statistics.median(values) for name, values in speeds.items()}

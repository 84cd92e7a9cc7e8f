"""Published results after a million steps, and the two levels by which the scores of a task are normalised.

Metrics: TRN, the return of stochastic training episodes; FIN, a final evaluation; MAX, the best over time of the mean
over seeds, which flatters (rlfromscratch: the mean of the five best, without one seed on Hopper and Humanoid).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from geonpg.configs import task_names

Array = NDArray[np.float64]

PUBLISHED_STEPS = 1_000_000
PAPER_TASKS = ("HalfCheetah", "Hopper", "Walker2d", "Reacher", "InvertedPendulum", "InvertedDoublePendulum")
TASKS = (*PAPER_TASKS, "Ant", "Swimmer", "Humanoid", "HumanoidStandup")

# Normalised score 1: ACKTR's training return at a million steps, from the paper's figure.
PAPER_LEVEL: Mapping[str, float] = dict(zip(PAPER_TASKS, (2160.0, 2640.0, 1785.0, -4.8, 980.0, 8000.0), strict=True))
# Normalised score 0: uniformly random actions in gymnasium's tasks, means of 20 (HalfCheetah) to 500 episodes.
RANDOM_LEVEL: Mapping[str, float] = {
    **dict(zip(PAPER_TASKS, (-260.0, 19.5, 3.0, -43.0, 6.0, 58.0), strict=True)),
    "Swimmer": -3.0,
    "CartPole": 22.7,
    "Pendulum": -1208.0,
}

# Training returns at these steps, from the paper's figure, by method and task; the last ones are in PUBLISHED.
PAPER_STEPS = (200_000, 400_000, 600_000, 800_000, PUBLISHED_STEPS)
PAPER_EARLIER: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "ng": {
        "HalfCheetah": (873, 1662, 1873, 2021),
        "Hopper": (1395, 1983, 2145, 2500),
        "Walker2d": (558, 1081, 1404, 1743),
    },
    "mid": {
        "HalfCheetah": (732, 1592, 2155, 2556),
        "Hopper": (1320, 2244, 2291, 2413),
        "Walker2d": (403, 642, 877, 1021),
    },
    "geo": {
        "HalfCheetah": (1197, 2035, 2387, 2690),
        "Hopper": (1337, 2221, 2227, 2384),
        "Walker2d": (807, 1350, 1698, 1922),
    },
}
# ACKTR's training return at all of them.
PAPER_CURVE: Mapping[str, tuple[float, ...]] = {
    task: (*earlier, PAPER_LEVEL[task]) for task, earlier in PAPER_EARLIER["ng"].items()
}


@dataclass(frozen=True)
class Published:
    """One row: returns as the source writes them, in the order of TASKS, empty where it has none."""

    method: str
    source: str
    metric: str
    seeds: str
    returns: tuple[str, ...]


NONE = ("",) * (len(TASKS) - len(PAPER_TASKS))
PUBLISHED = (
    Published("ACKTR", "the paper, v2", "TRN", "-", ("2160", "2640", "1785", "-4.8", "980", "8000", *NONE)),
    Published("mid-ACKTR", "the paper, v2", "TRN", "-", ("2845", "2477", "1220", "-4.5", "973", "8290", *NONE)),
    Published("geo-ACKTR", "the paper, v2", "TRN", "-", ("2895", "2520", "2190", "-4.9", "956", "8890", *NONE)),
    Published(
        "NPG", "Tianshou, v3", "MAX", "10",
        ("3485 ± 717", "1915 ± 551", "2503 ± 963", "-4.5 ± 0.5", "1000", "9243 ± 276",
         "2358 ± 518", "32 ± 8", "765 ± 91", ""),
    ),
    Published(
        "TRPO", "Tianshou, v3", "MAX", "10",
        ("4471 ± 805", "2046 ± 1038", "3827 ± 783", "-5.1 ± 0.8", "1000", "8435 ± 1073",
         "2867 ± 708", "41 ± 20", "810 ± 126", ""),
    ),
    Published(
        "PPO", "Tianshou, v3", "MAX", "10",
        ("5784 ± 1244", "2609 ± 701", "3589 ± 757", "-4.1 ± 0.3", "1000", "9231 ± 270",
         "3258 ± 1079", "67 ± 99", "787 ± 194", ""),
    ),
    Published(
        "TRPO", "sb3-contrib, v3", "FIN", "3",
        ("1803 ± 46", "3372 ± 215", "4502 ± 234", "", "", "", "3554 ± 591", "359 ± 2", "", ""),
    ),
    Published(
        "PPO", "CleanRL, v4", "TRN", "3",
        ("1443 ± 46", "2383 ± 272", "2288 ± 572", "", "963 ± 22", "", "", "", "716 ± 49", ""),
    ),
    Published(
        "A2C", "Tianshou, v3", "MAX", "10",
        ("1830 ± 1068", "1253 ± 458", "1092 ± 709", "-6.7 ± 2.3", "1000", "9258 ± 277",
         "3485 ± 433", "37 ± 2", "1726 ± 1070", ""),
    ),
    Published(
        "PPO", "rlfromscratch, v5", "MAX", "9 to 10",
        ("4859 ± 676", "3352 ± 231", "4273 ± 707", "", "", "", "3091 ± 475", "", "2130 ± 1099", ""),
    ),
    Published(
        "TRPO", "rlfromscratch, v5", "MAX", "10",
        ("5116 ± 988", "2992 ± 417", "4393 ± 436", "", "", "", "2554 ± 448", "", "607 ± 99", ""),
    ),
)  # fmt: skip


# Training returns after a million steps in the paper's figure, by method and task.
PAPER_FINALS: Mapping[str, Mapping[str, float]] = {
    method: dict(zip(PAPER_TASKS, map(float, filter(None, row.returns)), strict=True))
    for method, row in zip(PAPER_EARLIER, PUBLISHED, strict=False)
}


def paper_points(method: str, task: str) -> tuple[Sequence[int], Sequence[float]]:
    """Steps and training returns of a method in the paper's figure, as far as they were read off."""
    returns = (*PAPER_EARLIER[method].get(task, ()), PAPER_FINALS[method][task])
    return PAPER_STEPS[-len(returns) :], returns


def task_of(env_id: str) -> str:
    """Name of a task without its version."""
    return task_names(env_id)[0]


def is_anchored(env_id: str) -> bool:
    """Whether a task has the two levels of a normalised score."""
    return task_of(env_id) in PAPER_LEVEL


def kept(env_id: str, best: Array, last: Array) -> Array:
    """Share of its best evaluation's distance from a random policy that a run has left; 1 if it never got away."""
    random = RANDOM_LEVEL[task_of(env_id)]
    reached = np.maximum(best - random, 0.0)
    return np.divide(last - random, reached, out=np.ones_like(reached), where=reached > 0)


def normalised(env_id: str, scores: Array) -> Array:
    """Scores on the scale where 0 is a random policy and 1 the paper's ACKTR after a million steps."""
    task = task_of(env_id)
    return (scores - RANDOM_LEVEL[task]) / (PAPER_LEVEL[task] - RANDOM_LEVEL[task])

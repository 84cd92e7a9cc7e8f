"""Threads hold back while a core is needed for something else, and nothing else changes."""

import threading
import time

import numpy as np
import pytest
from native_envs import actions_for

from geonpg.envs import MujocoVecEnv

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def test_results_are_the_same_and_nobody_waits_for_the_busy_core() -> None:
    """One core stays busy through all steps, as if what needs it never ended: the others do all the work."""
    ends = []
    for threads, busy in ((2, 0), (2, 1), (3, 2), (1, 1)):
        env = MujocoVecEnv("Hopper-v4", 5, threads=threads)
        env.seed(0)
        env.reset()
        env.busy_cores.fill(busy)
        ends.append([env.step(row)[0] for row in actions_for(env, 20)])
        env.close()
    assert all(np.array_equal(end, ends[0]) for end in ends)


def test_threads_join_in_when_the_core_is_free() -> None:
    env = MujocoVecEnv("Walker2d-v4", 4, threads=2)
    env.seed(0)
    env.reset()
    env.busy_cores.fill(1)
    freed = threading.Timer(0.05, env.busy_cores.fill, (0,))
    freed.start()
    start = time.perf_counter()
    for row in actions_for(env, 100):
        env.step(row)
    freed.join()
    assert env.busy_cores == 0
    assert time.perf_counter() - start < 60
    env.close()

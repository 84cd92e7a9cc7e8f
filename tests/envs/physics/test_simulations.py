"""Threads that take simulations on: they end with them, and no signal disturbs them."""

import gc
import os
import signal
import threading
import time
from types import FrameType
from typing import Any

import mujoco
import numpy as np
import pytest
from native_envs import actions_for
from rollout_paths import assert_same, by_one_call, layers_for, noise_for

from geonpg.envs import MujocoVecEnv

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

ID = "InvertedPendulum-v4"


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Threads of earlier tests would end while ours are counted."""
    gc.collect()


def made(n: int = 6, threads: int = 4, env_id: str = ID) -> MujocoVecEnv:
    venv = MujocoVecEnv(env_id, n, threads=threads)
    venv.seed(0)
    venv.reset()
    return venv


def helpers(before: set[threading.Thread]) -> list[threading.Thread]:
    """Threads that have begun since and will not end soon by themselves."""
    return [thread for thread in set(threading.enumerate()) - before if not isinstance(thread, threading.Timer)]


def ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(5)
    return not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(("n", "threads", "expected"), [(6, 4, 3), (6, 1, 0), (1, 4, 0), (2, 8, 1)])
def test_as_many_threads_as_are_asked_for_and_no_more_than_simulations(n: int, threads: int, expected: int) -> None:
    before = set(threading.enumerate())
    venv = made(n, threads)
    assert len(helpers(before)) == expected, "the caller's own is one of them"
    venv.close()


def test_threads_end_when_the_environments_are_closed() -> None:
    before = set(threading.enumerate())
    venv = made()
    threads = helpers(before)
    assert all(thread.is_alive() for thread in threads)
    venv.close()
    assert not any(thread.is_alive() for thread in threads)
    venv.close()  # again does nothing


def test_closed_environments_go_on_in_the_callers_thread() -> None:
    closed, twin = made(), made()
    closed.close()
    layers, noise = layers_for(twin), noise_for(twin, 10)
    for actions in actions_for(twin, 5):
        assert_same(closed.step(actions)[:3], twin.step(actions)[:3])
    assert_same(by_one_call(closed, layers, noise), by_one_call(twin, layers, noise))
    assert_same(closed.reset(), twin.reset())
    twin.close()


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_threads_end_with_environments_that_nobody_closes(in_a_cycle: bool) -> None:
    before = set(threading.enumerate())
    venv: Any = made()
    venv.step(actions_for(venv, 1)[0])
    threads = helpers(before)
    assert len(threads) == 3
    if in_a_cycle:
        venv.itself = venv
    del venv
    gc.collect()
    assert ended(threads)


def test_many_environments_leave_no_threads() -> None:
    before = set(threading.enumerate())
    for k in range(40):
        venv = made(4, 4)
        if k % 2:
            venv.close()
    del venv
    gc.collect()
    patience = time.monotonic() + 5
    while helpers(before) and time.monotonic() < patience:
        time.sleep(0.01)
    assert not helpers(before)


def test_a_garbage_collection_waits_for_no_thread() -> None:
    """It may come while Python holds its lock of threads, which a thread needs in order to end."""
    before = set(threading.enumerate())
    venv, done = made(), threading.Event()
    threads = helpers(before)

    def collect() -> None:
        with threading._active_limbo_lock:
            venv.simulations._dismiss()
        done.set()

    threading.Thread(target=collect, daemon=True).start()
    assert done.wait(10)
    assert ended(threads)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_signals_change_nothing() -> None:
    """They come while threads wait for each other, hundreds of times."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    disturbed, twin = made(3, 3, "Hopper-v4"), made(3, 3, "Hopper-v4")
    layers, noise = layers_for(twin), noise_for(twin, 400)
    kept = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        played = by_one_call(disturbed, layers, noise)
        for actions in actions_for(twin, 50):
            disturbed.step(actions)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)
    assert came
    assert_same(played, by_one_call(twin, layers, noise))
    for actions in actions_for(twin, 50):
        twin.step(actions)
    assert_same(disturbed.get_state(), twin.get_state())
    disturbed.close()
    twin.close()


def test_a_state_that_is_set_shows_contact_forces_of_its_own() -> None:
    """And not those that the thread's simulation had of another environment."""
    venv = MujocoVecEnv("Ant-v5", 3, threads=1)
    venv.seed(0)
    venv.reset()
    for actions in actions_for(venv, 30):
        venv.step(actions)
    inner: Any = venv.wrapped.unwrapped
    for height in (0.2, 3.0):
        qpos = inner.init_qpos.copy()
        qpos[2] = height
        venv.env_method("set_state", qpos, inner.init_qvel, indices=0)
        with venv._reference_at(0):
            mujoco.mj_rnePostConstraint(inner.model, inner.data)
            assert inner.data.cfrc_ext.any() == (height < 1), "on the ground, or above it"
            assert np.allclose(venv.simulations.observations[0], inner._get_obs(), rtol=1e-6, atol=1e-9)


def test_a_fork_steps_alone() -> None:
    """It has none of the threads, and must not wait for them."""
    env = MujocoVecEnv("InvertedPendulum-v4", 4, threads=2)
    env.seed(0)
    env.reset()
    child = os.fork()
    if child == 0:
        env.step(np.zeros((4, 1), np.float32))
        os._exit(0)
    for _ in range(1000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child waits for threads that it does not have")
    assert status == 0
    env.step(np.zeros((4, 1), np.float32))
    env.close()

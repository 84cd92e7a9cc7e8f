"""MuJoCo's clock stands still inside, and goes on afterwards, for whoever set it."""

import ctypes

import mujoco
import numpy as np
import pytest

from geonpg.envs import MujocoVecEnv
from geonpg.envs.physics.clock import without_clock
from geonpg.envs.physics.library import mujoco_library


def clock() -> int | None:
    return ctypes.c_void_p.in_dll(mujoco_library(), "mjcb_time").value


def test_the_clock_goes_on_when_the_last_block_ends() -> None:
    before = clock()
    assert before is not None
    with without_clock:
        assert clock() is None
        with without_clock:
            assert clock() is None
        assert clock() is None
    assert clock() == before


def test_it_goes_on_after_an_error() -> None:
    before = clock()
    with pytest.raises(KeyError), without_clock:
        raise KeyError
    assert clock() == before


def test_steps_of_ours_take_no_time_and_those_of_others_do() -> None:
    env = MujocoVecEnv("InvertedPendulum-v4", 1, threads=1)
    env.reset()
    env.step(np.zeros((1, 1), np.float32))
    assert env.simulations._data[0].timer[mujoco.mjtTimer.mjTIMER_STEP].duration == 0
    data = env.reference.data
    mujoco.mj_step(env.reference.model, data)
    assert data.timer[mujoco.mjtTimer.mjTIMER_STEP].duration > 0
    env.close()

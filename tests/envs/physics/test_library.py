"""Addresses of C functions: called, they do what Python's own do."""

import ctypes
import math
from pathlib import Path

import mujoco
import numpy as np
import pytest

from geonpg.envs.physics import library


def test_mujocos_functions_are_those_of_the_python_package() -> None:
    """Of the same library, which is loaded once: a callback that Python sets is set there too."""
    version = ctypes.CFUNCTYPE(ctypes.c_char_p)(library.mujoco_function("mj_versionString"))
    assert version().decode() == mujoco.mj_versionString()
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"
    )
    ours, theirs = mujoco.MjData(model), mujoco.MjData(model)
    step = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.mujoco_function("mj_step"))
    for _ in range(5):
        step(model._address, ours._address)
        mujoco.mj_step(model, theirs)
    assert ours.time > 0
    assert np.array_equal(ours.qpos, theirs.qpos)
    with pytest.raises(AttributeError, match="mj_fly"):
        library.mujoco_function("mj_fly")


def test_a_package_without_its_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mujoco, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(OSError, match=f"MuJoCo's shared library is not in {tmp_path}"):
        library.mujoco_library.__wrapped__()


def test_power_is_the_c_librarys() -> None:
    power = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(library.power_function())
    for x in np.random.default_rng(0).normal(size=100):
        assert power(x, 2.0) == math.pow(x, 2.0)

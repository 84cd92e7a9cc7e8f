"""Observations, arrays and dictionaries of arrays alike."""

import numpy as np
from toy_envs import OBSERVATIONS

from geonpg.agents.observations import batch_of_one, flattened, stacked


def test_steps_and_environments_become_one_dimension() -> None:
    rollout = np.arange(24).reshape(2, 3, 4)
    assert np.array_equal(flattened(rollout), np.arange(24).reshape(6, 4))
    parts = flattened({"place": rollout, "room": np.arange(6).reshape(2, 3)})
    assert isinstance(parts, dict)
    assert parts["place"].shape == (6, 4)
    assert np.array_equal(parts["room"], np.arange(6))


def test_single_observations_become_a_batch() -> None:
    assert np.array_equal(stacked([np.zeros(2), np.ones(2)]), [[0, 0], [1, 1]])
    parts = stacked([{"place": np.zeros(2), "room": np.int64(1)}, {"place": np.ones(2), "room": np.int64(2)}])
    assert isinstance(parts, dict)
    assert np.array_equal(parts["room"], [1, 2])
    assert parts["place"].shape == (2, 2)


def test_a_batch_of_one_is_of_its_space() -> None:
    assert isinstance(one := batch_of_one(OBSERVATIONS["image"]), np.ndarray)
    assert (one.shape, one.dtype) == ((1, 3, 36, 36), np.uint8)
    parts = batch_of_one(OBSERVATIONS["dictionary"])
    assert isinstance(parts, dict)
    assert [part.shape for part in parts.values()] == [(1, 4), (1,)]

"""Our environments behind gymnasium's vector interface."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from geonpg.envs import GymVectorEnv, MujocoVecEnv

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def test_the_same_as_gymnasiums_own_vector_environment() -> None:
    ours = GymVectorEnv(MujocoVecEnv("Hopper-v5", 3))
    theirs = gymnasium.make_vec(
        "Hopper-v5", 3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}
    )
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert np.array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    ended = 0
    theirs.action_space.seed(0)
    for _ in range(200):
        actions = theirs.action_space.sample()
        mine, other = ours.step(actions), theirs.step(actions)
        for a, b in zip(mine[:4], other[:4], strict=True):
            assert np.array_equal(a, b)
        for i in np.flatnonzero(mine[2] | mine[3]):
            assert mine[4]["_final_obs"][i]
            assert np.array_equal(mine[4]["final_obs"][i], other[4]["final_obs"][i])
            assert mine[4]["episode"]["l"][i] > 0
            ended += 1
    assert ended > 5
    ours.close()
    theirs.close()


def test_seeds_one_by_one() -> None:
    ours = GymVectorEnv(MujocoVecEnv("Reacher-v5", 2))
    first = ours.reset(seed=[4, 4])[0]
    assert np.array_equal(first[0], first[1])
    with pytest.raises(ValueError, match="environment 1 is not finite"):
        ours.step(np.array([[0.0, 0.0], [np.nan, 0.0]], dtype=np.float32))

"""Our environments behind gymnasium's vector interface."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from processes import drawn

from geonpg.envs import GymVectorEnv, MujocoVecEnv
from geonpg.errors import Refused

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
            assert mine[4]["_final_info"][i]
            assert mine[4]["final_info"]["_episode"][i]
            assert mine[4]["final_info"]["episode"]["l"][i] > 0
            ended += 1
    assert ended > 5
    ours.close()
    theirs.close()


def test_gymnasiums_own_statistics_of_episodes_go_around_it() -> None:
    ours = RecordEpisodeStatistics(GymVectorEnv(MujocoVecEnv("Hopper-v5", 3)))
    ours.reset(seed=0)
    ours.action_space.seed(0)
    ended = 0
    for _ in range(100):
        infos = ours.step(ours.action_space.sample())[4]
        for i in np.flatnonzero(infos.get("_episode", [])):
            assert infos["episode"]["r"][i] == pytest.approx(infos["final_info"]["episode"]["r"][i])
            assert infos["episode"]["l"][i] == infos["final_info"]["episode"]["l"][i]
            ended += 1
    assert ended > 5


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Reacher-v5", "Ant-v5"])  # what a task looks at differs
def test_some_environments_are_reset_as_gymnasium_does(env_id: str) -> None:
    ours = GymVectorEnv(MujocoVecEnv(env_id, 3))
    theirs = gymnasium.make_vec(
        env_id, 3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}
    )
    theirs.action_space.seed(0)
    ours.reset(seed=3)
    theirs.reset(seed=3)
    for seed in (None, 8, [5, 6, None]):
        for _ in range(5):
            actions = theirs.action_space.sample()
            ours.step(actions)
            theirs.step(actions)
        mask = np.array([True, False, True])
        mine, other = (env.reset(seed=seed, options={"reset_mask": mask})[0] for env in (ours, theirs))
        assert np.array_equal(mine, other)
    actions = theirs.action_space.sample()
    assert np.array_equal(ours.step(actions)[0], theirs.step(actions)[0])
    for wrong in ([True, True], np.zeros(3, np.bool_), np.array([0, 1, 2])):
        with pytest.raises(Refused, match=r"^reset_mask must be 3 flags, some of them true, not "):
            ours.reset(options={"reset_mask": wrong})


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Humanoid-v5"])
def test_E17_infos_are_gymnasiums_where_they_are_asked_for(env_id: str) -> None:
    ours = GymVectorEnv(MujocoVecEnv(env_id, 2, infos=True))
    theirs = gymnasium.make_vec(
        env_id, 2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}
    )
    theirs.action_space.seed(0)
    mine, other = ours.reset(seed=3)[1], theirs.reset(seed=3)[1]
    ended = 0
    for _ in range(80):
        assert mine.keys() == other.keys()
        final = mine.pop("final_info", {}), other.pop("final_info", {})
        assert all(np.array_equal(mine[name], value) for name, value in other.items() if name != "final_obs")
        assert final[0].keys() - {"episode", "_episode"} == final[1].keys()
        assert all(np.array_equal(final[0][name], value) for name, value in final[1].items())
        ended += bool(final[1])
        actions = theirs.action_space.sample()
        mine, other = ours.step(actions)[4], theirs.step(actions)[4]
    assert ended > 0


@pytest.mark.parametrize("seed", [(4, 9), np.array([4, 9]), [np.int64(4), 9]], ids=["tuple", "array", "numpy's"])
def test_E17_seeds_in_any_sequence(seed: Any) -> None:
    ours = GymVectorEnv(MujocoVecEnv("Reacher-v5", 2))
    expected = ours.reset(seed=[4, 9])[0]
    assert np.array_equal(ours.reset(seed=seed)[0], expected)
    assert np.array_equal(ours.reset(seed=np.int64(4))[0], ours.reset(seed=4)[0])
    with pytest.raises(Refused, match=r"^seed must be one number or 2 of them, not 3$"):
        ours.reset(seed=(1, 2, 3))


VIDEO = """
import sys
import numpy as np
from gymnasium.wrappers.vector import RecordVideo
from geonpg.envs import GymVectorEnv, MujocoVecEnv
env = GymVectorEnv(MujocoVecEnv("HalfCheetah-v5", 3, render_mode="rgb_array", width=64, height=48))
env.reset(seed=0)
env.venv.env_method("set_state", np.full(9, 0.3), np.zeros(9), indices=1)
pictures = env.render()
assert [picture.shape for picture in pictures] == [(48, 64, 3)] * 3, pictures
assert not np.array_equal(pictures[0], pictures[1])
assert np.array_equal(env.venv.render(), pictures[0])
assert pictures[0].std() > 1, "something is drawn"
recorder = RecordVideo(env, sys.argv[1], video_length=3)
recorder.reset(seed=0)
for _ in range(4):
    recorder.step(recorder.action_space.sample())
recorder.close()
"""


def test_E15_every_environment_is_drawn(tmp_path: Path) -> None:
    """By gymnasium's interface, and one of them by SB3's."""
    assert drawn(VIDEO, tmp_path)
    assert list(tmp_path.glob("*.mp4"))


def test_seeds_one_by_one() -> None:
    ours = GymVectorEnv(MujocoVecEnv("Reacher-v5", 2))
    first = ours.reset(seed=[4, 4])[0]
    assert np.array_equal(first[0], first[1])
    for wrong in ([4], [4, 4, 4]):
        with pytest.raises(Refused, match=rf"^seed must be one number or 2 of them, not {len(wrong)}$"):
            ours.reset(seed=wrong)
    with pytest.raises(Refused, match="environment 1 is not finite"):
        ours.step(np.array([[0.0, 0.0], [np.nan, 0.0]], dtype=np.float32))

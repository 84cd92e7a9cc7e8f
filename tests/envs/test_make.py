"""Which environment one gets."""

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from geonpg.envs import MujocoVecEnv, is_native, make_vec
from geonpg.errors import Refused

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def test_native_where_there_is_one() -> None:
    venv = make_vec("Walker2d-v4", 3, seed=0, ctrl_cost_weight=0.5)
    assert isinstance(venv, MujocoVecEnv)
    assert venv.get_attr("_ctrl_cost_weight") == [0.5] * 3
    first = venv.reset()
    assert (make_vec("Walker2d-v4", 3, seed=0, ctrl_cost_weight=0.5).reset() == first).all()


def test_anything_else_falls_back_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert isinstance(make_vec("Acrobot-v1", 2, seed=0), DummyVecEnv)
    assert caplog.text.count("Acrobot-v1 has no native implementation: it runs in SB3's DummyVecEnv") == 1

    def wrapped() -> gymnasium.Env:
        return gymnasium.wrappers.RescaleAction(gymnasium.make("HalfCheetah-v5"), -2, 2)

    assert isinstance(make_vec(wrapped, 2), DummyVecEnv)
    assert caplog.text.count("wrapped has no native implementation") == 1


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Pusher-v5"])
def test_E17_infos_on_request(env_id: str) -> None:
    venv = make_vec(env_id, 2, seed=0, infos=True)
    venv.reset()
    infos = venv.step(np.zeros((2, *venv.action_space.shape)))[3]
    assert all("reward_ctrl" in info for info in infos)


def test_unknown_environments_get_the_known_ones_named() -> None:
    with pytest.raises(Refused, match=r"^unknown environment 'Rocket-v4': choose one of Ant-v4, .*Walker2d-v5"):
        make_vec("Rocket-v4")
    assert not is_native("CartPole-v1")
    assert is_native("HumanoidStandup-v5")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("Walker-v4", "Walker2d-v4"),
        ("walker2d-v4", "Walker2d-v4"),
        ("Walker2d", "Walker2d-v5"),
        ("HalfChetah-v4", "HalfCheetah-v4"),
        ("CartPole", "CartPole-v1"),
        ("Pendulum-v0", "Pendulum-v1"),
        ("Hoper-v9", "Hopper-v5"),
    ],
)
def test_C6_the_environment_that_was_meant(wrong: str, right: str) -> None:
    with pytest.raises(Refused, match=rf"^unknown environment '{wrong}' \(did you mean {right}\?\): choose one of "):
        make_vec(wrong)


@pytest.mark.parametrize("game", ["ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_C7_atari_needs_a_package(game: str) -> None:
    cure = rf"Atari's come with ale-py \(pip install ale-py\): name it ale_py:{game}$"
    with pytest.raises(Refused, match=f"^unknown environment '{game}': {cure}"):
        make_vec(game)


@pytest.mark.parametrize("env", ["CartPole-v1", "Hopper-v4"])
def test_no_environments_are_too_few(env: str) -> None:
    with pytest.raises(Refused, match=r"^n_envs must be at least 1, not 0$"):
        make_vec(env, 0)

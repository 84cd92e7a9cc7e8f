"""Robots of one's own: bit for bit what plain gymnasium computes, wherever an environment is used; and refusals."""

import signal
import sys
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from own_robots import BALANCER, JUMPER, BalancerTwin, Jumper, JumperTwin, forget, robots
from short_runs import after_updates, evaluated, refusal, results

import geonpg
from geonpg.agents import ACKTR
from geonpg.envs import GymVectorEnv, MujocoVecEnv, Normalize, Robot, is_native, make_vec, register
from geonpg.envs.task import gaussian_start
from geonpg.errors import Refused
from geonpg.scripts import cli, train

Twin = Callable[..., gymnasium.Env]

IDS = [BALANCER, JUMPER]
TINY = ["--n-envs=4", "--set=n_steps=64", "--set=eval_episodes=2", "--steps=1024"]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with robots(monkeypatch):
        yield


@pytest.fixture
def twin(tmp_path: Path) -> Twin:
    """Makes the twin of a robot."""

    def make(env_id: str, limit: int, **keywords: Any) -> gymnasium.Env:
        inner = BalancerTwin(**keywords) if env_id == BALANCER else JumperTwin(tmp_path, **keywords)
        return gymnasium.wrappers.TimeLimit(inner, limit)

    return make


def actions_for(n: int, steps: int, dtype: type = np.float32) -> np.ndarray:
    """A little beyond the bounds, where MuJoCo clamps, and mostly in one direction for a while: [steps, n, 1]."""
    rng = np.random.default_rng(0)
    drift = np.sin(np.arange(steps) / 9)[:, None, None]
    return (0.8 * drift + rng.uniform(-0.3, 0.3, (steps, n, 1))).astype(dtype)


def assert_identical(env_id: str, twins: list[gymnasium.Env], dtype: type = np.float32, **keywords: Any) -> int:
    """Drive robots and their twins with the same seeds and actions; returns how many episodes ended."""
    venv = make_vec(env_id, len(twins), seed=7, threads=1, **keywords)
    assert isinstance(venv, MujocoVecEnv)
    assert venv.action_space == twins[0].action_space
    assert venv.observation_space == twins[0].observation_space
    assert np.array_equal(venv.reset(), [each.reset(seed=7 + i)[0] for i, each in enumerate(twins)])
    episodes = 0
    for actions in actions_for(len(twins), 400, dtype):
        step = venv.advance(actions)
        for i, each in enumerate(twins):
            seen, earned, terminated, truncated, _ = each.step(actions[i])
            assert step.rewards[i] == earned
            assert (step.terminated[i], step.truncated[i]) == (terminated, truncated)
            if terminated or truncated:
                assert np.array_equal(step.final_observations[list(step.ended).index(i)], seen)
                seen, _ = each.reset()
                episodes += 1
            assert np.array_equal(step.observations[i], seen)
    return episodes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("env_id", IDS)
def test_a_robot_is_what_plain_gymnasium_computes(env_id: str, dtype: type, twin: Twin) -> None:
    """400 steps of two environments through many resets: observations, rewards, ends, final observations."""
    twins = [twin(env_id, 40) for _ in range(2)]
    assert assert_identical(env_id, twins, dtype, max_episode_steps=40) >= 20


def test_its_numbers_are_keywords(twin: Twin) -> None:
    assert assert_identical(BALANCER, [twin(BALANCER, 30, farthest=0.5, control=0.3)], max_episode_steps=30,
                            farthest=0.5, control=0.3)  # fmt: skip
    assert assert_identical(JUMPER, [twin(JUMPER, 40, up=0.25)], up=0.25)


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_makes_one_too(env_id: str, twin: Twin) -> None:
    env, other = gymnasium.make(env_id, max_episode_steps=40), twin(env_id, 40)
    assert np.array_equal(env.reset(seed=3)[0], other.reset(seed=3)[0])
    ends = 0
    for (action,) in actions_for(1, 300):
        found, expected = env.step(action), other.step(action)
        assert np.array_equal(found[0], expected[0])
        assert found[1:] == expected[1:]
        if found[2] or found[3]:
            assert np.array_equal(env.reset()[0], other.reset()[0])
            ends += 1
    assert ends >= 7
    check_env(gymnasium.make(env_id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("env_id", IDS)
def test_a_state_goes_on_in_whatever_number_of_threads(env_id: str) -> None:
    venv, other = make_vec(env_id, 5, seed=0, threads=1), make_vec(env_id, 5, threads=3)
    venv.reset()
    other.reset()
    for k, actions in enumerate(actions_for(5, 120)):
        if k == 60:
            other.set_state(venv.get_state())
        found, again = venv.step(actions), other.step(actions)
        if k >= 60:
            assert all(np.array_equal(one, two) for one, two in zip(found[:3], again[:3], strict=True))


def test_attributes_and_methods() -> None:
    venv = make_vec(BALANCER, 2, seed=0)
    observations = venv.reset()
    assert venv.get_attr("control") == [0.01, 0.01]
    actions, state = np.ones((2, 1), np.float32), venv.get_state()
    cheap = venv.step(actions)[1]
    venv.set_state(state)
    venv.set_attr("control", 1.01)
    assert venv.step(actions)[1] == pytest.approx(cheap - 1, abs=1e-6)
    venv.set_state(state)
    places = np.stack(venv.env_method("state_vector"))
    assert np.array_equal(places[:, 2], observations[:, 1])
    venv.env_method("set_state", np.array([0, 0, 0.25, 0, 1.0]), np.zeros(5), indices=1)
    assert venv.get_state()["observations"][1].tolist() == [1, 0.25, 0, 0, 0]
    env = gymnasium.make(BALANCER)
    env.reset(seed=0)
    env.unwrapped.control = 1.01
    assert env.step(actions[0])[1] == pytest.approx(cheap[0] - 1, abs=1e-6)


def test_it_goes_wherever_environments_go() -> None:
    assert is_native("Balancer-v0") is False, "nobody has imported its module"
    vector = GymVectorEnv(MujocoVecEnv(BALANCER, 3, infos=True))
    assert vector.reset(seed=0)[0].shape == (3, 5)
    assert vector.step(np.zeros((3, 1)))[0].shape == (3, 5)
    assert is_native(BALANCER)
    assert is_native("Balancer-v0")
    with pytest.raises(Refused, match=r"^unknown environment 'Balancr-v0' \(did you mean Balancer-v0\?\)"):
        make_vec("Balancr-v0")


def test_an_agent_trains_on_it_in_whole_rollouts() -> None:
    agent = ACKTR("MlpPolicy", Normalize(make_vec(BALANCER, 8, seed=0)), n_steps=32, seed=0)
    agent.learn(8 * 32 * 3)
    assert agent.rolled
    assert len(agent.ep_info_buffer) > 10


# Commands


def test_commands_train_resume_evaluate_and_export_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was interrupted is the uninterrupted one; its module is imported only if the user names it."""
    whole, parts, env = tmp_path / "whole", tmp_path / "parts", ("--env", BALANCER)
    assert cli.main(["train", *env, "--folder", str(whole), *TINY]) == 0
    with monkeypatch.context() as patch:
        after_updates(2, lambda run: signal.raise_signal(signal.SIGTERM), patch)
        assert cli.main(["train", *env, "--folder", str(parts), *TINY]) == 128 + signal.SIGTERM
    assert "no native implementation" not in capsys.readouterr().err
    forget(BALANCER)
    assert "asks for the module 'balancer'" in refusal(capsys, whole)
    assert "balancer" not in sys.modules
    assert cli.main(["train", *env, "--resume", str(parts)]) == 0
    assert results(parts) == results(whole)
    found = evaluated(capsys, whole, *env, "--episodes", 2, "--export", tmp_path / "balancer.onnx")
    assert found["export"]["difference"] < 1e-5
    policy = geonpg.load(whole, env=BALANCER)
    action, _ = policy.predict(gymnasium.make(BALANCER).reset(seed=0)[0])
    assert action.shape == (1,)


@pytest.mark.skipif(find_library("EGL") is None, reason="needs EGL")
def test_a_video_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    assert cli.main(["train", "--env", BALANCER, "--folder", str(tmp_path / "run"), *TINY]) == 0
    film = ("--video", tmp_path / "episode.gif", "--seconds", 1, "--width", 100)
    video = evaluated(capsys, tmp_path / "run", "--env", BALANCER, "--episodes", 1, *film)["video"]
    assert video["frames"] == len(range(0, video["length"], 3)), "50 steps a second, at most 15 pictures"
    assert (tmp_path / "episode.gif").stat().st_size > 1000


# Refusals


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "observe": ({"observe": None}, "Wrong has no observe: write a function with @observation above it"),
    "reward": ({"reward": None}, "Wrong has no reward: write a function with @reward above it"),
    "plain": ({"reward": len}, "Wrong has something else as reward: write a function with @reward above it"),
    "other": ({"ended": Jumper.reward}, "Wrong has something else as ended: write a function with @ending above it"),
    "size": ({"observation_size": 0}, "observation_size of Wrong must be a positive number, not 0"),
    "skip": ({"frame_skip": 2.5}, "frame_skip of Wrong must be a positive number, not 2.5"),
    "limit": ({"time_limit": -1}, "time_limit of Wrong-v0 must be a number of steps, or None, not -1"),
    "model": ({"model": None}, "Wrong has no model: name an MJCF file, wrong.xml for example"),
    "missing": ({"model": "/no/such.xml"}, "the model of Wrong is missing: there is no file /no/such.xml"),
    "name": ({"defaults": {"a b": 1.0}}, "defaults of Wrong: 'a b' must be a name, which the functions read as k.NAME"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_class_that_lacks_something_is_one_sentence(case: str) -> None:
    changed, sentence = WRONG[case]
    with pytest.raises(Refused, match=r".") as refused:
        register("Wrong-v0", type("Wrong", (Jumper,), changed))
    assert str(refused.value) == sentence
    assert "Wrong-v0" not in gymnasium.registry


def test_only_robots_are_registered() -> None:
    with pytest.raises(Refused, match=r"^a robot is a subclass of geonpg.envs.Robot, not <class 'int'>$"):
        register("Wrong-v0", int)
    with pytest.raises(Refused, match=r"^Robot has no observe: "):
        register("Wrong-v0", Robot)


UNMADE: dict[str, tuple[dict[str, Any], str]] = {
    "xml": ({"model": "<mujoco><bdy/></mujoco>"},
            "MuJoCo rejects the model of Wrong, its XML: XML Error: Schema violation: unrecognized element "),
    "still": ({"model": "<mujoco/>"}, "the model of Wrong has no actuators, so that nothing can act"),
    "unbounded": ({"model": Jumper.model.replace('ctrlrange="-1 1"', "")}, "actuator 0 of Wrong needs a ctrlrange"),
    "gymnasium": ({"defaults": {"width": 1.0}}, "defaults of Wrong: 'width' means something else to gymnasium, rename"),
    "number": ({"defaults": {"up": "high"}}, "up of Wrong must be a number, not 'high'"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNMADE)
def test_a_model_that_does_not_work_is_one_sentence(case: str) -> None:
    changed, sentence = UNMADE[case]
    register("Wrong-v0", type("Wrong", (Jumper,), changed))
    for make in (make_vec, gymnasium.make):
        with pytest.raises(Refused, match=r".") as refused:
            make("Wrong-v0")
        assert str(refused.value).startswith(sentence)
        assert "\n" not in str(refused.value)
    forget("Wrong-v0")


def test_an_id_has_one_robot() -> None:
    register(JUMPER, Jumper)  # a cell of a notebook that is run again
    other = type("Other", (Jumper,), {})
    with pytest.raises(Refused, match=r"^Jumper-v0 is taken by own_robots.Jumper: register Other under another id$"):
        register(JUMPER, other)
    with pytest.raises(Refused, match=r"^Hopper-v4 is taken by gymnasium\..*: register Other under another id$"):
        register("Hopper-v4", other)
    register(JUMPER, Jumper, time_limit=3)
    assert gymnasium.spec(JUMPER).max_episode_steps == 3


def test_an_unknown_keyword_is_one_sentence() -> None:
    legal = "render_mode, width, height, camera_id, camera_name, max_geom, visual_options, max_episode_steps"
    for make, name in ((make_vec, "Jumper-v0"), (gymnasium.make, "Jumper")):
        with pytest.raises(Refused, match=r".") as refused:
            make(JUMPER, gravity=3.0)
        sentence = f"{name} takes no keyword 'gravity': choose one of {legal}, reset_noise, impact, up, lowest"
        assert str(refused.value) == sentence


def test_a_module_that_is_refused_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence, and nothing is left behind."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(
        "from geonpg.envs import register\nfrom own_robots import Jumper\n"
        "class Broken(Jumper):\n    model = 'broken.xml'\nregister('Broken-v0', Broken)\n"
    )
    capsys.readouterr()
    assert train.main(["--env", "broken:Broken-v0", *TINY]) == 2
    missing = f"the model of Broken is missing: there is no file {tmp_path / 'broken.xml'}"
    assert capsys.readouterr().err == f"geonpg train: {missing}\n"
    (tmp_path / "broken.xml").write_text("<mujoco>")
    assert train.main(["--env", "broken:Broken-v0", *TINY]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"geonpg train: MuJoCo rejects the model of Broken, {tmp_path / 'broken.xml'}: XML ")
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()
    forget("broken:Broken-v0")


# Ways to write one


def test_a_robot_may_be_typed_in(twin: Twin) -> None:
    """Without a file, of the class or of the model; nothing is kept of it."""
    scope: dict[str, Any] = {"__name__": "typed"}
    text = """
from geonpg.envs import register
from geonpg.envs.physics import helper, reward
from own_robots import Jumper
@helper
def climbed(sim, k, before):
    return k.up * ((sim.site_xpos[int(k.top), 2] - before) / k.dt)
class Typed(Jumper):
    @reward
    def reward(sim, k, before):
        return climbed(sim, k, before) - 0.0
register("Typed-v0", Typed)
"""
    exec(compile(text, "<typed>", "exec"), scope)
    venv = make_vec("Typed-v0", 2, seed=0, impact=0.0)
    other = make_vec(JUMPER, 2, seed=0, impact=0.0)
    assert np.array_equal(venv.reset(), other.reset())
    for actions in actions_for(2, 30):
        assert np.array_equal(venv.step(actions)[1], other.step(actions)[1])
    forget("Typed-v0")


def test_a_robot_inherits() -> None:
    """Its defaults are those of its base class too; a first state may be one of ours."""
    register("Child-v0", type("Child", (Jumper,), {"reset": gaussian_start, "defaults": {"reset_noise": 0.1}}))
    assert make_vec("Child-v0").get_attr("up") == [2.0]
    assert np.abs(make_vec("Child-v0", 8, seed=0).reset()[:, 2:4]).max() > 0.1
    forget("Child-v0")

"""Videos: the right pictures, or one sentence and no file."""

import sys
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image
from short_runs import Runs, evaluated, refusal
from stable_baselines3.common.base_class import BaseAlgorithm

from geonpg.agents import ACKTR
from geonpg.scripts.models.loading import load
from geonpg.scripts.models.video import picture, stage
from geonpg.scripts.runs.building import RAW

Zipped = Callable[[BaseAlgorithm], Path]


@pytest.mark.parametrize("name", ["pendulum", "cartpole"])
def test_a_video_shows_an_episode(
    name: str, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "cartpole":
        pytest.importorskip("pygame")
    elif find_library("EGL") is None:
        pytest.skip("needs EGL")
    monkeypatch.delenv("DISPLAY", raising=False)
    result = evaluated(capsys, runs(name), "--video", tmp_path / "episode.mp4", "--episodes", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["episode.mp4"]
    video, every = result["video"], {"pendulum": 1, "cartpole": 2}[name]  # 25 and 50 steps a second
    assert (video["return"], video["length"]) == (result["returns"][0], result["lengths"][0])
    facts, *frames = imageio_ffmpeg.read_frames(str(tmp_path / "episode.mp4"))
    assert len(frames) == video["frames"] == len(range(0, video["length"], every))
    assert facts["size"] == {"pendulum": (480, 480), "cartpole": (600, 400)}[name]
    assert facts["fps"] == 25
    assert len(np.unique(np.frombuffer(frames[-1], np.uint8))) > 10
    assert frames[0] != frames[-1]


@pytest.mark.skipif(find_library("EGL") is None, reason="needs EGL")
def test_an_animation_shows_the_beginning_beside_the_learning_curve(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    look = ("--curve", "--seconds", 1, "--fps", 13, "--width", 100, "--episodes", 1)
    result = evaluated(capsys, runs("pendulum"), "--video", tmp_path / "episode.gif", *look)
    video, length = result["video"], min(25, result["lengths"][0])  # 25 steps a second
    assert (video["length"], video["whole"]) == (length, length < 25)
    assert video["return"] == length, "each step is rewarded by 1"
    with Image.open(tmp_path / "episode.gif") as gif:
        assert gif.n_frames == video["frames"] == len(range(0, length, 2))
        assert gif.size == (100 + 120, 100)


def test_a_curve_is_of_a_run(zipped: Zipped, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = zipped(ACKTR("MlpPolicy", "CartPole-v1", device="cpu"))
    said = refusal(capsys, path, "--env", "CartPole-v1", "--curve", "--video", tmp_path / "episode.gif")
    assert said == f"--curve draws the learning curve of a run, and {tmp_path} holds no curve.csv"


@pytest.mark.skipif(find_library("EGL") is None, reason="needs EGL")
def test_the_camera_follows_a_runner(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    env = stage(replace(load(runs("pendulum")), env_id="Walker2d-v4", settings=RAW), 0)
    env.reset()
    physics: Any = env.unwrapped

    def walker_pixels() -> int:
        """Brown and pink, before a green floor and a blue sky."""
        frame = picture(env).astype(int)
        return int((frame[:, :, 0] - frame[:, :, 1] > 20).sum())

    before = walker_pixels()
    assert before > 1000
    joints = physics.get_attr("data")[0]
    physics.env_method("set_state", joints.qpos + 30 * np.eye(9)[0], joints.qvel.copy())  # metres
    assert walker_pixels() == pytest.approx(before, rel=0.1)


def test_a_broken_renderer_is_one_sentence_and_no_file(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUJOCO_GL", "crayons")
    said = refusal(capsys, runs("pendulum"), "--video", tmp_path / "episode.mp4")
    assert "MUJOCO_GL, which is crayons, must be one of egl, osmesa and glfw that works here" in said
    assert "for egl, `apt-get install libegl1 libgl1`" in said
    monkeypatch.setitem(sys.modules, "pygame", None)
    assert "pygame is not installed, run `pip install" in refusal(
        capsys, runs("cartpole"), "--video", tmp_path / "episode.mp4"
    )
    assert list(tmp_path.iterdir()) == []

"""A video of one episode, on a machine without a screen too."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from tqdm import tqdm

from geonpg.envs import is_native, quietly
from geonpg.errors import Refused
from geonpg.files import replacing
from geonpg.scripts.models.policy import TrainedPolicy
from geonpg.scripts.runs.building import play

FRAMES_PER_SECOND = 30  # about; more would cost time and show no more
DISK = "is the disk full?"


def record(trained: TrainedPolicy, path: Path, seed: int, deterministic: bool, expected: int) -> dict[str, Any]:
    """Write an episode as an .mp4, at the speed of life; tells its return, length and frames.

    It begins like the first one of an evaluation. Played alone, its actions are rounded otherwise, so that it may end
    otherwise; `expected` steps are a guess for the progress bar.
    """
    env = stage(trained, seed)
    rate = float(env.get_attr("metadata")[0].get("render_fps", FRAMES_PER_SECOND))
    every = max(1, round(rate / FRAMES_PER_SECOND))
    with replacing(path) as temporary, tqdm(total=expected, unit=" steps", desc=path.name, delay=0.1) as bar:
        with film(temporary, rate / every) as shoot:

            def watch() -> None:
                if bar.n % every == 0:
                    shoot(picture(env))
                bar.update()

            returns, lengths = play(trained, env, deterministic, watch)
        frames = len(range(0, int(lengths[0]), every))
        if frames_in(temporary) != frames:
            raise OSError(f"{path} could not be written whole: {DISK}")
    env.close()
    return {"file": str(path), "return": float(returns[0]), "length": int(lengths[0]), "frames": frames}


def stage(trained: TrainedPolicy, seed: int) -> VecEnv:
    """One environment that can be drawn. The camera follows what runs away, where the task has such a camera."""
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")  # both are read when the first picture is drawn
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame's
    camera = {"camera_name": "track"} if is_native(str(trained.env_id)) else {}
    return trained.make_env(1, seed, render_mode="rgb_array", **camera)


def picture(env: VecEnv) -> NDArray[np.uint8]:
    """[height, width, 3]."""
    try:
        with quietly():
            frame = env.render()
    except DependencyNotInstalled:  # says itself what to do
        raise
    except Exception as error:  # OpenGL's backends fail in many ways
        backend = os.environ.get("MUJOCO_GL", "not set")
        advice = f"MUJOCO_GL, which is {backend}, must be one of egl, osmesa and glfw that works here"
        raise Refused(f"no picture can be drawn: {advice} ({type(error).__name__}: {error})") from None
    if frame is None:
        raise Refused("this environment draws no pictures")
    return np.ascontiguousarray(frame)


def frames_in(path: Path) -> int:
    """Of a video that can be read; ffmpeg itself does not say whether it could write all of it."""
    try:
        return int(imageio_ffmpeg.count_frames_and_secs(str(path))[0])
    except RuntimeError:
        return 0


@contextmanager
def film(path: Path, rate: float) -> Iterator[Callable[[NDArray[np.uint8]], None]]:
    """A function that appends a picture to the file; all are of the first one's size."""
    writer: Any = None

    def shoot(frame: NDArray[np.uint8]) -> None:
        nonlocal writer
        if writer is None:
            size = frame.shape[1], frame.shape[0]
            writer = imageio_ffmpeg.write_frames(
                path, size, fps=rate, macro_block_size=2, ffmpeg_log_level="quiet", output_params=["-f", "mp4"]
            )
            writer.send(None)
        try:
            writer.send(frame)
        except OSError:
            raise OSError(f"ffmpeg gave up: {DISK}") from None

    try:
        yield shoot
    finally:
        if writer is not None:
            writer.close()

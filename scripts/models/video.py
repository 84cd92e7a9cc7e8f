"""A film of one episode, on a machine without a screen too."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from stable_baselines3.common.vec_env import VecEnv
from tqdm import tqdm

from geonpg.envs import is_native, quietly
from geonpg.errors import Refused
from geonpg.files import replacing
from geonpg.scripts.models.curve import LearningCurve
from geonpg.scripts.models.film import Look, Picture, film, narrowed
from geonpg.scripts.models.policy import TrainedPolicy

USUAL_RATE = 30  # steps per second of an environment that does not say it


def record(
    trained: TrainedPolicy, path: Path, seed: int, deterministic: bool, look: Look, expected: int | None = None
) -> dict[str, Any]:
    """Write an episode as an .mp4, .gif or .webp at its true speed; return plain data about it.

    It begins like the first episode of an evaluation, but may end differently: a batch of one is rounded differently.
    expected: a guess at its length, for the progress bar.
    """
    with closing(stage(trained, seed)) as env:
        rate = float(env.get_attr("metadata")[0].get("render_fps", USUAL_RATE))
        every = max(1, round(rate / look.fps))
        end = None if look.seconds is None else round(look.seconds * rate)
        episode, camera = Episode(trained, env, deterministic), Camera(trained, env, look)
        with (
            replacing(path) as temporary,
            tqdm(total=expected, unit=" steps", desc=path.name, delay=0.1) as bar,
            film(temporary, path.suffix, rate / every, look) as shoot,
        ):
            while not episode.over and episode.length != end:
                if episode.length % every == 0:
                    shoot(camera.picture(episode.earned))
                episode.step()
                bar.update()
    return {
        "file": str(path),
        "return": episode.earned,
        "length": episode.length,
        "frames": len(range(0, episode.length, every)),
        "whole": episode.over,
    }


class Episode:
    """One episode of a policy, step by step."""

    def __init__(self, trained: TrainedPolicy, env: VecEnv, deterministic: bool) -> None:
        self.trained, self.env, self.deterministic = trained, env, deterministic
        self.observations: Any = env.reset()
        self.state, self.starts = None, np.ones(1, dtype=bool)
        self.earned, self.length, self.over = 0.0, 0, False

    def step(self) -> None:
        """Act once. `earned` is the return so far, and in the end the one that the environment reports."""
        actions, self.state = self.trained.predict(self.observations, self.state, self.starts, self.deterministic)
        self.observations, rewards, self.starts, infos = self.env.step(actions)
        self.length, self.over = self.length + 1, bool(self.starts[0])
        self.earned = float(infos[0]["episode"]["r"]) if self.over else self.earned + float(rewards[0])


class Camera:
    """The pictures of a film: the environment, and the learning curve beside it if the look asks for it."""

    def __init__(self, trained: TrainedPolicy, env: VecEnv, look: Look) -> None:
        self.env, self.width = env, look.width
        self.curve = LearningCurve(trained, len(self.scene())) if look.curve else None

    def scene(self) -> Picture:
        """Draw the environment alone."""
        return narrowed(picture(self.env), self.width)

    def picture(self, earned: float) -> Picture:
        """Draw one picture of the film, after this return."""
        scene = self.scene()
        return scene if self.curve is None else np.concatenate([scene, self.curve.at(earned)], axis=1)


def stage(trained: TrainedPolicy, seed: int) -> VecEnv:
    """Make one environment that can be drawn; the camera follows a runner where the task has such a camera."""
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")  # both are read when the first picture is drawn
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame's
    camera = {"camera_name": "track"} if is_native(str(trained.env_id)) else {}
    return trained.make_env(1, seed, render_mode="rgb_array", **camera)


def picture(env: VecEnv) -> Picture:
    """Draw the environment as it is now; refused, with what to install, if nothing here can draw."""
    try:
        with quietly():
            frame = env.render()
    except DependencyNotInstalled:  # says itself what to do
        raise
    except Exception as error:  # OpenGL's backends fail in many ways
        backend = os.environ.get("MUJOCO_GL", "not set")
        advice = (
            f"MUJOCO_GL, which is {backend}, must be one of egl, osmesa and glfw that works here; for egl, "
            "`apt-get install libegl1 libgl1`, for osmesa, `apt-get install libosmesa6`"
        )
        raise Refused(f"no picture can be drawn: {advice} ({type(error).__name__}: {error})") from None
    if frame is None:
        raise Refused("this environment draws no pictures")
    return np.ascontiguousarray(frame)

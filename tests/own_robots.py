"""Robots as a user would write them, and their twins in plain gymnasium, written without a look at our functions.

`Balancer` is the example in docs/examples; `Jumper` uses what it leaves out: functions inside of the class, XML in a
string, contact forces, a sensor, a site by its name and the default first state.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.mujoco import MujocoEnv

from geonpg.envs import Robot, register
from geonpg.envs.physics import all_finite, clipped, ending, observation, progress, reward, sum_of_squares

EXAMPLES = Path(__file__).resolve().parents[1] / "docs" / "examples"
BALANCER = "balancer:Balancer-v0"
JUMPER = "Jumper-v0"

JUMPER_XML = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody>
    <geom type="plane" size="0 0 0.1"/>
    <body name="trunk" pos="0 0 0.5">
      <joint type="slide" axis="0 0 1"/>
      <geom type="box" size="0.1 0.1 0.1" mass="1"/>
      <site name="side" pos="0.1 0 0"/>
      <site name="top" pos="0 0 0.1"/>
      <body name="foot" pos="0 0 -0.3">
        <joint name="leg" type="slide" axis="0 0 1" stiffness="300" damping="2" range="-0.15 0.15"/>
        <geom type="sphere" size="0.05" mass="0.2"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="leg" gear="60" ctrlrange="-1 1"/></actuator>
  <sensor><velocimeter site="top"/></sensor>
</mujoco>
"""


class Jumper(Robot):
    """Push off the ground."""

    model = JUMPER_XML
    frame_skip = 5
    observation_size = 7
    time_limit = 40
    contact_forces = True
    defaults = {"impact": 1e-5, "up": 2.0, "lowest": -0.4}  # noqa: RUF012

    @observation
    def observe(sim, k):
        sim.observation[:2] = sim.qpos
        sim.observation[2:4] = sim.qvel
        sim.observation[4] = sim.site_xpos[int(k.top), 2]
        sim.observation[5] = clipped(sim.cfrc_ext[int(k.foot), 5], -10.0, 10.0)
        sim.observation[6] = sim.sensordata[2]

    @progress
    def progress(sim, k):
        return sim.site_xpos[int(k.top), 2]

    @reward
    def reward(sim, k, before):
        return k.up * ((sim.site_xpos[int(k.top), 2] - before) / k.dt) - k.impact * sum_of_squares(sim.cfrc_ext)

    @ending
    def ended(sim, k):
        return not all_finite(sim) or sim.qpos[0] < k.lowest

    def constants(self) -> dict[str, float]:
        model = self.reference.model
        return {**super().constants(), "top": model.site("top").id, "foot": model.body("foot").id}


class BalancerTwin(MujocoEnv):
    """The example, as one would write it for gymnasium."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, farthest: float = 2.0, control: float = 0.01) -> None:
        space = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float64)
        super().__init__(str(EXAMPLES / "balancer.xml"), 4, space)
        self.farthest, self.control = farthest, control

    def distance(self) -> float:
        return np.abs(self.data.joint("mark").qpos[0] - self.data.joint("x").qpos[0])

    def view(self) -> np.ndarray:
        way = self.data.joint("mark").qpos - self.data.joint("x").qpos
        speeds = [self.data.joint(name).qvel for name in ("x", "lean", "wheel")]
        return np.concatenate([np.clip(way, -1, 1), self.data.joint("lean").qpos, *speeds])

    def step(self, action: Any) -> Any:
        away = self.distance()
        self.do_simulation(action, self.frame_skip)
        speed = (-self.distance() - -away) / self.dt
        bonus = 1.0 if self.distance() < 0.1 else 0.0
        cost = self.control * np.sum(np.square(action))
        fell = bool(np.abs(self.data.joint("lean").qpos[0]) > 0.6)
        return self.view(), 1 + speed + bonus - cost, fell, False, {}

    def reset_model(self) -> np.ndarray:
        qpos, qvel = self.init_qpos.copy(), self.init_qvel.copy()
        qpos[2] = self.np_random.uniform(-0.05, 0.05)
        qpos[4] = self.np_random.uniform(-self.farthest, self.farthest)
        self.set_state(qpos, qvel)
        return self.view()


class JumperTwin(MujocoEnv):
    """The jumper, as one would write it for gymnasium."""

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"], "render_fps": 100}  # noqa: RUF012

    def __init__(self, folder: Path, up: float = 2.0) -> None:
        (folder / "jumper.xml").write_text(JUMPER_XML)
        space = gymnasium.spaces.Box(-np.inf, np.inf, (7,), np.float64)
        super().__init__(str(folder / "jumper.xml"), 5, space)
        self.up = up

    def top(self) -> float:
        return float(self.data.site("top").xpos[2])

    def view(self) -> np.ndarray:
        force = np.clip(self.data.body("foot").cfrc_ext[5], -10, 10)
        return np.concatenate([self.state_vector(), [self.top(), force, self.data.sensordata[2]]])

    def step(self, action: Any) -> Any:
        before = self.top()
        self.do_simulation(action, self.frame_skip)
        reward = self.up * ((self.top() - before) / self.dt) - 1e-5 * np.sum(np.square(self.data.cfrc_ext))
        ended = not np.isfinite(self.state_vector()).all() or self.data.qpos[0] < -0.4
        return self.view(), reward, bool(ended), False, {}

    def reset_model(self) -> np.ndarray:
        places = self.init_qpos + self.np_random.uniform(-0.01, 0.01, size=self.model.nq)
        self.set_state(places, self.init_qvel + self.np_random.uniform(-0.01, 0.01, size=self.model.nv))
        return self.view()


def forget(env_id: str) -> None:
    """As if an id had never been registered, nor its module imported."""
    module, _, name = env_id.rpartition(":")
    sys.modules.pop(module, None)
    gymnasium.registry.pop(name, None)


@contextmanager
def robots(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example can be found, and the jumper is registered; afterwards gymnasium knows neither."""
    patch.syspath_prepend(EXAMPLES)
    register(JUMPER, Jumper)
    yield
    forget(BALANCER)
    forget(JUMPER)

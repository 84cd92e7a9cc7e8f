"""A robot of one's own: an MJCF file, and a class with compiled functions. It runs as our ten tasks do."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, cast

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv

from geonpg.errors import Refused

from .arrays import Array, Info, Numbers
from .physics import FUNCTIONS, Function, Single
from .physics.patience import told
from .reference import OF_ANY, Reference, refuse_others
from .spaces import one_line
from .task import Task, physics_of
from .trials import try_out

ENTRY_POINT = f"{__name__}:RobotEnv"
DECORATORS = dict(zip(FUNCTIONS, ("observation", "progress", "reward", "ending", "first_state"), strict=True))
MODES: Info = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}
PIXELS = 480  # width and height of a picture, as gymnasium has them

_tried: set[type["Robot"]] = set()


class Robot(Task):
    """A robot of one's own: subclass it, and `register` the class.

    model: its MJCF file; a relative path begins in the folder of the class's own file. Or the XML itself.
    frame_skip: physics steps in a step of the environment, 1 to 10: so many that it takes 0.01 to 0.05 seconds.
    observation_size: how many numbers `observe` fills in, 3 to 400.
    time_limit: steps after which an episode is cut off, 100 to 1000; None for never.
    defaults: numbers that the functions read as `k`, by name, such as weights of 0.001 to 10; in addition to those of
        the base class. `make_vec` takes them as keywords. `k.dt` is there too: the seconds that a step takes.
    observe: made by @observation, `observe(sim, k)`: fills in `sim.observation`.
    reward: made by @reward, `reward(sim, k, before)`: the reward of a step; `before` is the progress before it.
    progress: made by @progress, `progress(sim, k)`: what the next reward compares with; 0 if there is none.
    ended: made by @ending, `ended(sim, k)`: whether a state ends the episode; never, if there is none.
    reset: made by @first_state, `reset(sim, k, rng)`: draws `sim.qpos` and `sim.qvel` of a new episode; by default
        uniform noise of `k.reset_noise`, 0.001 to 0.1, around the model's own.
    contact_forces: does any of them look at `sim.cfrc_ext`? It takes a call of its own after every step.
    joints_only: do `observe` and `progress` look at nothing but qpos and qvel? Then a reset is cheaper.
    """

    model: str | Path
    frame_skip: int
    observation_size: int
    time_limit: int | None = 1000
    defaults: ClassVar[Mapping[str, float]] = {"reset_noise": 0.01}

    def __init__(self, reference: Reference) -> None:
        self.reference = reference

    @classmethod
    def numbers(cls) -> dict[str, float]:
        """Return `defaults`, those of the base classes included."""
        found: dict[str, float] = {}
        for each in reversed(cls.__mro__):
            found |= vars(each).get("defaults", {})
        return found

    def constants(self) -> dict[str, float]:
        """Return what the functions read as `k`; override it to add what the model knows, such as a site's number."""
        return {"dt": float(self.reference.dt), **{name: getattr(self.reference, name) for name in self.numbers()}}


class RobotEnv(MujocoEnv):
    """One environment of a robot behind gymnasium's interface: the same functions, called from Python.

    robot: the class; `register` has told gymnasium.
    render_mode: "rgb_array", "depth_array", "rgbd_tuple" or "human"; None to render nothing.
    width, height: of pictures, 100 to 1000 pixels.
    camera_id, camera_name: one of the model's cameras; by default the one that is called track.
    max_geom: geoms that a picture may show, 1000 to 10000.
    visual_options: MuJoCo's flags of rendering, by their numbers.
    constants: the robot's numbers, where they differ from its `defaults`.
    """

    metadata = MODES

    def __init__(
        self,
        robot: type[Robot],
        render_mode: str | None = None,
        width: int = PIXELS,
        height: int = PIXELS,
        camera_id: int | None = None,
        camera_name: str | None = None,
        max_geom: int = 1000,
        visual_options: dict[int, bool] | None = None,
        **constants: float,
    ) -> None:
        refuse_others(robot.__name__, constants, ["render_mode", *OF_ANY, *robot.numbers()])
        self._class = robot
        space = gymnasium.spaces.Box(-np.inf, np.inf, (robot.observation_size,), np.float64)
        looks = (render_mode, width, height, camera_id, camera_name, None, max_geom, visual_options)
        super().__init__(".", robot.frame_skip, space, *looks)  # a path that is there: the model is read below
        self.metadata = {**self.metadata, "render_fps": max(1, round(1 / self.dt))}
        for name, value in (robot.numbers() | constants).items():
            self._set_number(name, value)
        self.robot = robot(cast(Reference, self))
        shared = physics_of(self.robot, cast(Reference, self), robot.observation_size)
        with told():
            if robot not in _tried:
                try_out(robot.__name__, shared)
                _tried.add(robot)
            self._single = Single(shared, self.data)

    def _set_number(self, name: str, value: float) -> None:
        if hasattr(self, name):
            raise Refused(f"defaults of {self._class.__name__}: {name!r} means something else to gymnasium, rename it")
        if not isinstance(value, int | float | np.number):
            raise Refused(f"{name} of {self._class.__name__} must be a number, not {value!r}")
        setattr(self, name, float(value))

    def _initialize_simulation(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        model = read_model(self._class)
        view = model.vis.global_
        view.offwidth, view.offheight = max(view.offwidth, self.width), max(view.offheight, self.height)
        return model, mujoco.MjData(model)

    def _step_mujoco_simulation(self, ctrl: Numbers, n_frames: int) -> None:
        self.data.ctrl[:] = ctrl
        mujoco.mj_step(self.model, self.data, n_frames)
        if self.robot.contact_forces:
            mujoco.mj_rnePostConstraint(self.model, self.data)

    def step(self, action: Numbers) -> tuple[Array, np.float64, bool, bool, Info]:
        """Return observation, reward, terminated, truncated and an empty info."""
        single, action = self._single, np.asarray(action)
        single.set_constants(self.robot.constants())
        before = single.progress()
        self.do_simulation(action, self.frame_skip)
        single.set_action(action)
        reward, ended = np.float64(single.reward(before)), single.ended()
        if self.render_mode == "human":
            self.render()
        return single.observe(), reward, ended, False, {}

    def reset_model(self) -> Array:
        """Draw the first state of an episode, and return its observation."""
        self._single.set_constants(self.robot.constants())
        self._single.reset(self.np_random)
        mujoco.mj_forward(self.model, self.data)
        return self._single.observe()


def register(env_id: str, robot: type[Robot], time_limit: int | None = None) -> None:
    """Make a robot known to gymnasium under an id, so that `make_vec`, `geonpg train` and all others run it.

    env_id: such as Balancer-v0. In commands it is `module:Balancer-v0`, with the module that calls this.
    robot: its class.
    time_limit: steps after which an episode is cut off, 100 to 1000; None for the class's own.

    Raises geonpg.errors.Refused, with one sentence, if the class lacks something or the id is taken.
    """
    check(robot)
    limit = robot.time_limit if time_limit is None else time_limit
    if limit is not None and not is_count(limit):
        raise Refused(f"time_limit of {env_id} must be a number of steps, or None, not {limit!r}")
    there = gymnasium.registry.get(env_id)
    if there is not None:
        other = there.kwargs.get("robot")
        if other is None or (home(other), other.__qualname__) != (home(robot), robot.__qualname__):
            taken = f"{other.__module__}.{other.__qualname__}" if other else there.entry_point
            raise Refused(f"{env_id} is taken by {taken}: register {robot.__name__} under another id")
        del gymnasium.registry[env_id]  # a module or a cell that is run again
    gymnasium.register(env_id, ENTRY_POINT, kwargs={"robot": robot}, max_episode_steps=limit)


def check(robot: type[Robot]) -> None:
    """Refuse a class that lacks something, or has something else in its place."""
    if not (isinstance(robot, type) and issubclass(robot, Robot)):
        raise Refused(f"a robot is a subclass of geonpg.envs.Robot, not {robot!r}")
    name = robot.__name__
    for function, decorator in DECORATORS.items():
        found = getattr(robot, function, None)
        if not isinstance(found, Function) or found.decorator != decorator:
            what = "has no" if found is None else "has something else as"
            raise Refused(f"{name} {what} {function}: write a function with @{decorator} above it")
    for number in ("observation_size", "frame_skip"):
        if not is_count(getattr(robot, number, None)):
            raise Refused(f"{number} of {name} must be a positive number, not {getattr(robot, number, None)!r}")
    wrong = [each for each in robot.numbers() if not str(each).isidentifier()]
    if wrong:
        raise Refused(f"defaults of {name}: {wrong[0]!r} must be a name, which the functions read as k.NAME")
    model_of(robot)


def is_count(value: object) -> bool:
    """Return whether this is a positive whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def home(robot: type[Robot]) -> Path | None:
    """Return the file that a class is written in; None if it was typed in."""
    file = getattr(sys.modules.get(robot.__module__), "__file__", None)
    return None if file is None else Path(file).resolve()


def model_of(robot: type[Robot]) -> str | Path:
    """Return the XML of a robot's model, or the path of its file; Refused if there is none."""
    owner = next((each for each in robot.__mro__ if "model" in vars(each)), None)
    model = getattr(robot, "model", None)
    if owner is None or not isinstance(model, str | Path):
        raise Refused(f"{robot.__name__} has no model: name an MJCF file, {robot.__name__.lower()}.xml for example")
    if isinstance(model, str) and model.lstrip().startswith("<"):
        return model
    base = home(owner)
    path = (Path() if base is None else base.parent) / Path(model).expanduser()
    if not path.is_file():
        raise Refused(f"the model of {robot.__name__} is missing: there is no file {path}")
    return path


def read_model(robot: type[Robot]) -> mujoco.MjModel:
    """Compile a robot's model; Refused with MuJoCo's own words if it cannot, and if actions would have no bounds."""
    source = model_of(robot)
    read = mujoco.MjModel.from_xml_path if isinstance(source, Path) else mujoco.MjModel.from_xml_string
    try:
        model = read(str(source))
    except ValueError as error:
        file = source if isinstance(source, Path) else "its XML"
        raise Refused(f"MuJoCo rejects the model of {robot.__name__}, {file}: {one_line(error)}") from None
    if model.nu == 0:
        raise Refused(f"the model of {robot.__name__} has no actuators, so that nothing can act")
    for i, (low, high) in enumerate(model.actuator_ctrlrange):
        if not low < high:
            raise Refused(f"actuator {model.actuator(i).name or i} of {robot.__name__} needs a ctrlrange")
    return model

"""A trial of a task's functions before they run at full speed, where an index is not checked and no error is raised."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import mujoco
import numpy as np

from geonpg.errors import Refused

from .arrays import Array
from .physics import FUNCTIONS, Physics, Single, constants_type
from .physics.functions import OF_DATA
from .reference import quietly

Found = TypeVar("Found")

STEPS = 50  # random ones
MOST_MEMORY = 0.5  # of what a model has for contacts and constraints, in random steps
EMPTY = (-7.25e11, 3.5e11)  # what stands in a room for observations, on two occasions
STATE = ("qpos", "qvel", "act", "ctrl")  # what mj_forward computes the rest from
TABLE = re.compile(r"(Simulation|Constants|Generator)\(.*\)[0-9a-f]{16}")  # how numba calls what we call sim, k and rng
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of numba's messages, where colorama is installed
SHORT = {"Simulation": "sim", "Constants": "k", "Generator": "rng"}


def try_out(name: str, shared: Physics) -> None:
    """Refuse functions that cannot be compiled, fail within some random steps, or compute what is not finite."""
    with quietly():
        Trial(name, shared).run()


def why(error: Exception) -> str:
    """Say in one line why a function cannot be compiled: what numba found, the call that it did not, and where."""
    plain = COLOUR.sub("", str(error))
    lines = [line.strip() for line in TABLE.sub(lambda found: SHORT[found[1]], plain).splitlines()]
    said = [line for line in lines if line and not line.startswith("Failed in nopython mode")] or [type(error).__name__]
    call = [line.removeprefix(">>> ") for line in said[1:] if line.startswith(">>> ")][:1]
    place = re.search(r'File "([^"]+)", line (\d+)', plain)
    return " ".join([said[0], *call, *([f"({Path(place[1]).name}, line {place[2]})"] if place else [])])


class Trial:
    """A simulation of its own, on which functions are called whose indices are checked."""

    def __init__(self, name: str, shared: Physics) -> None:
        self.name, self.shared, self.data = name, shared, mujoco.MjData(shared.model)
        kind = constants_type(tuple(shared.constants))
        for function in FUNCTIONS:
            try:
                shared.functions[function].address(kind, checks=True)
            except Exception as error:  # numba's own, and whatever else it stumbles over
                raise Refused(f"{function} of {name} cannot be compiled: {why(error)}") from None
        self.single = Single(shared, self.data, checks=True)

    @contextmanager
    def blaming(self, function: str) -> Iterator[None]:
        """Refuse a function in which an error was raised, which compiled code can only report."""
        errors: list[BaseException | None] = []
        usual, sys.unraisablehook = sys.unraisablehook, lambda found: errors.append(found.exc_value)
        try:
            yield
        finally:
            sys.unraisablehook = usual
        if errors:
            size = f", where observation_size is {self.shared.observation_size}" if function == "observe" else ""
            raise Refused(f"{function} of {self.name} raises {type(errors[0]).__name__}: {errors[0]}{size}")

    def ask(self, function: str, call: Callable[[], Found]) -> Found:
        """Call a function; refuse it for an error, and for a result that is not finite."""
        with self.blaming(function):
            found = call()
        numbers = np.asarray(found, np.float64)
        if not np.isfinite(numbers).all():
            where = f" in place {int(np.argmin(np.isfinite(numbers)))}" if numbers.ndim else ""
            raise Refused(f"{function} of {self.name} computes {numbers[~np.isfinite(numbers)].flat[0]}{where}")
        return found

    def run(self) -> None:
        """Take random steps, and begin new episodes where one ends."""
        model, rng = self.shared.model, np.random.default_rng(0)
        self.begin(rng)
        self.check_filled()
        if self.shared.joints_only:
            self.check_joints_only(rng)
        for _ in range(STEPS):
            before = self.ask("progress", self.single.progress)
            action = rng.uniform(*model.actuator_ctrlrange.T).astype(np.float32)
            self.data.ctrl[:] = action
            mujoco.mj_step(model, self.data, self.shared.frame_skip)
            if self.shared.contact_forces:
                mujoco.mj_rnePostConstraint(model, self.data)
            self.single.set_action(action)
            self.look(before)
            if self.ask("ended", self.single.ended):
                self.begin(rng)
        if not self.shared.contact_forces:
            self.check_no_forces()
        self.check_memory()

    def look(self, before: float = 0.0) -> list[Array]:
        """Return all that the functions say of a state."""
        single = self.single
        found = [self.ask("reward", lambda: single.reward(before)), self.ask("ended", single.ended)]
        return [*map(np.asarray, found), *self.look_ahead()]

    def look_ahead(self) -> list[Array]:
        """Return what is computed of the first state of an episode too."""
        return [self.ask("observe", self.single.observe), np.asarray(self.ask("progress", self.single.progress))]

    def begin(self, rng: np.random.Generator) -> None:
        """Begin an episode."""
        mujoco.mj_resetData(self.shared.model, self.data)
        with self.blaming("reset"):
            self.single.reset(rng)
        if not (np.isfinite(self.data.qpos).all() and np.isfinite(self.data.qvel).all()):
            raise Refused(f"reset of {self.name} draws a state that is not finite")
        mujoco.mj_forward(self.shared.model, self.data)
        self.look_ahead()

    def check_filled(self) -> None:
        """Refuse an observation that is longer than what is filled in."""
        untouched = np.ones(self.shared.observation_size, np.bool_)
        for number in EMPTY:
            self.single.observation[:] = number
            untouched &= self.ask("observe", self.single.observe) == number
        if untouched.any():
            filled, size = int((~untouched).sum()), len(untouched)
            raise Refused(f"observe of {self.name} fills in {filled} numbers, but its observation_size is {size}")

    def check_joints_only(self, rng: np.random.Generator) -> None:
        """Refuse functions that look at more of a first state than they say, which is not computed then."""
        before = self.look_ahead()
        for field in OF_DATA.keys() - {*STATE}:
            getattr(self.data, field)[:] = rng.normal(size=getattr(self.data, field).shape)
        if not alike(before, self.look_ahead()):
            raise Refused(f"{self.name} looks at more than qpos and qvel: it needs joints_only = False")
        mujoco.mj_forward(self.shared.model, self.data)

    def check_memory(self) -> None:
        """Refuse a model that nearly fills its memory: where that does not suffice, MuJoCo ends the process."""
        used, there = int(self.data.maxuse_arena), int(self.shared.model.narena)
        if used > MOST_MEMORY * there:
            more = f'give it more, <size memory="{max(1, round(4 * used / 2**20))}M"/> for example'
            raise Refused(f"the model of {self.name} uses {used} of its {there} bytes for contacts: {more}")

    def check_no_forces(self) -> None:
        """Refuse functions that look at forces which are not computed."""
        before = self.look()
        self.data.cfrc_ext[:] += 1.0
        if not alike(before, self.look()):
            raise Refused(f"{self.name} looks at cfrc_ext: it needs contact_forces = True")


def alike(one: list[Array], other: list[Array]) -> bool:
    """Return whether two looks have found the same."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))

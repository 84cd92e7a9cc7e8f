"""What an environment computes around the physics: a task, five compiled functions of one simulation.

Tasks of gymnasium's environments read their constants off one of these, the reference, so that keywords and defaults
are gymnasium's own; and they repeat gymnasium's arithmetic operation by operation, so that results are equal to the
last bit.
"""

from abc import ABC, abstractmethod

from .physics import (
    FUNCTIONS,
    Constants,
    Function,
    Generator,
    Physics,
    Simulation,
    ending,
    first_state,
    normal,
    progress,
    uniform,
)
from .reference import Reference

NO_LIMIT = 2**62  # steps of an episode without a time limit


@progress
def no_progress(sim: Simulation, k: Constants) -> float:
    """Return zero: rewards look at the present only."""
    return 0.0


@ending
def never(sim: Simulation, k: Constants) -> bool:
    """Return False: only a time limit ends an episode."""
    return False


@first_state
def uniform_start(sim: Simulation, k: Constants, rng: Generator) -> None:
    """Draw a first state with uniform noise on positions and velocities."""
    for i in range(len(sim.qpos)):
        sim.qpos[i] = sim.init_qpos[i] + uniform(rng, -k.reset_noise, k.reset_noise)
    for i in range(len(sim.qvel)):
        sim.qvel[i] = sim.init_qvel[i] + uniform(rng, -k.reset_noise, k.reset_noise)


@first_state
def gaussian_start(sim: Simulation, k: Constants, rng: Generator) -> None:
    """Draw a first state with uniform noise on positions and normal noise on velocities."""
    for i in range(len(sim.qpos)):
        sim.qpos[i] = sim.init_qpos[i] + uniform(rng, -k.reset_noise, k.reset_noise)
    for i in range(len(sim.qvel)):
        sim.qvel[i] = sim.init_qvel[i] + k.reset_noise * normal(rng)


class Task(ABC):
    """The functions of an environment, and the constants that they read.

    observe: fills in the observation.
    progress: what the next step's reward compares with, a position for example; by default nothing.
    reward: the reward of a step.
    ended: whether a state ends the episode; by default never.
    reset: draws the first state of an episode.
    contact_forces: does it look at `cfrc_ext`, which takes a call of its own after every step?
    joints_only: does it look at nothing but qpos and qvel? Then a reset needs no mj_forward.
    """

    observe: Function
    progress: Function = no_progress
    reward: Function
    ended: Function = never
    reset: Function = uniform_start
    contact_forces: bool = False
    joints_only: bool = False

    @abstractmethod
    def constants(self) -> dict[str, float]:
        """Return what the functions read as `k`, by name."""


def physics_of(task: Task, reference: Reference, observation_size: int, time_limit: int | None = None) -> Physics:
    """Return what simulations of a task have in common."""
    return Physics(
        model=reference.model,
        functions={name: getattr(task, name) for name in FUNCTIONS},
        constants=task.constants(),
        observation_size=observation_size,
        frame_skip=reference.frame_skip,
        time_limit=time_limit or NO_LIMIT,
        init_qpos=reference.init_qpos,
        init_qvel=reference.init_qvel,
        contact_forces=task.contact_forces,
        joints_only=task.joints_only,
    )


class GymTask(Task):
    """A task of gymnasium's."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.v5 = type(reference).__module__.endswith("_v5")

    def constants(self) -> dict[str, float]:
        """Return the version, the time of a step and the noise of first states; tasks add their own."""
        noise = getattr(self.reference, "_reset_noise_scale", 0.0)
        return {"v5": float(self.v5), "dt": float(self.reference.dt), "reset_noise": float(noise)}

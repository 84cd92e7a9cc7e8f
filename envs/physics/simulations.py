"""Many simulations of one model, taken through steps, rollouts and resets by threads of compiled code."""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from threading import Thread
from weakref import finalize

import mujoco
import numba
import numpy as np
from numba.core import types
from numpy.typing import NDArray

from geonpg.cores import usable_cores

from .clock import without_clock
from .functions import (
    GENERATOR,
    OF_DATA,
    OF_MODEL,
    SIMULATION,
    Array,
    Floats,
    Function,
    Integers,
    code_address,
    constants_type,
)
from .kernel import ADDRESSES, FUNCTIONS, JOB, REFRESH, RESET, ROLL, STOP, lead, serve
from .library import dot_is_fused, mujoco_function, normal_function, power_function
from .patience import told
from .semaphores import Semaphore, give_way_function, look_function, nap_function, post_function, wait_function
from .sources import kept
from .tables import Table, addresses_of

# Everything that the next mj_step depends on, the solver's warm start included.
PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION

WORK, ACTS, SINGLE, START, LAST = (JOB.words[name] for name in ("work", "acts", "single", "start", "stop"))

Bytes = NDArray[np.uint8]


class Kernel:
    """The kernel, compiled or loaded from the disk; calls of it hold no interpreter lock."""

    def __init__(self) -> None:
        forms = (lead, types.void(JOB)), (serve, types.void(JOB, types.int64))
        # which own the machine's code
        led, served = self._compiled = [kept(numba.cfunc, python, form, error_model="numpy") for python, form in forms]
        self.lead = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code_address(led))
        self.serve = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(code_address(served))


compiled_kernel = cache(Kernel)


@dataclass(frozen=True)
class Physics:
    """What simulations have in common: the model, the task's functions and constants, and how to step them."""

    model: mujoco.MjModel
    functions: dict[str, Function]  # by the names in FUNCTIONS
    constants: dict[str, float]
    observation_size: int
    frame_skip: int
    time_limit: int
    init_qpos: Array
    init_qvel: Array
    contact_forces: bool  # are they looked at? They take a call of their own after every step
    joints_only: bool  # is nothing but qpos and qvel looked at? Then a reset needs no mj_forward


@dataclass(frozen=True)
class Acting:
    """A Gaussian policy that acts inside of rollouts, and how it sees observations."""

    weights: Floats  # as `policy.forward` takes them
    widths: Integers
    kinds: Integers
    low: Floats
    high: Floats
    mean: Array
    deviation: Array
    clip: float


class Recording:
    """Room for what simulations do in so many steps: [steps, simulations, ...]; see `kernel.RECORDED`."""

    def __init__(self, steps: int, n: int, observation: int) -> None:
        self.after: Array = np.empty((steps, n, observation))
        self.rewards: Array = np.empty((steps, n))
        self.terminated: Bytes = np.empty((steps, n), np.uint8)
        self.truncated: Bytes = np.empty((steps, n), np.uint8)
        # memory that is never written to is never taken from the system
        self.finals: Array = np.empty((steps, n, observation))
        self.final_returns: Array = np.empty((steps, n))
        self.final_lengths: Integers = np.empty((steps, n), np.int64)

    @property
    def dones(self) -> NDArray[np.bool_]:
        """Where episodes ended: [steps, simulations]."""
        return (self.terminated | self.truncated).view(np.bool_)


class Simulations:
    """The state of n simulations, and threads that take them on.

    threads: how many, 0 for one per core; they change no result.
    """

    def __init__(self, shared: Physics, n: int, threads: int = 0) -> None:
        self.shared, self.n = shared, n
        self.threads = min(threads or usable_cores(), n)
        model = shared.model
        self.physics: Array = np.zeros((n, mujoco.mj_stateSize(model, PHYSICS)))
        self.observations: Array = np.zeros((n, shared.observation_size))
        self.before: Array = np.zeros(n)
        self.returns: Array = np.zeros(n)
        self.lengths: Integers = np.zeros(n, np.int64)
        self._generators: list[np.random.Generator] = []
        self._chosen: Bytes = np.ones(n, np.uint8)
        self._counter: Integers = np.zeros(1, np.int64)
        self._stretches: Integers = np.zeros(n, np.int64)
        self.busy: Integers = np.zeros(1, np.int64)  # cores that something else needs for a while: threads hold back
        self._recording: Recording | None = None
        self._data = [mujoco.MjData(model) for _ in range(self.threads)]
        self._simulations = [simulation_table(shared, data) for data in self._data]
        for row in self.physics:
            mujoco.mj_getState(model, self._data[0], row, PHYSICS)
        with told():
            self._job, self._kernel = self._make_job(), compiled_kernel()
        self._address = self._job.address
        kept = self._kernel, self._job, self._semaphores
        self._helpers = [Thread(target=help_with, args=(*kept, i), daemon=True) for i in range(1, self.threads)]
        for helper in self._helpers:
            helper.start()
        self._dismiss = finalize(self, dismiss, self._job, self._semaphores)
        self._dismiss.atexit = False  # what others do at the end may need them, and they keep no process alive
        self._process = os.getpid()

    def _make_job(self) -> Table:
        shared, names = self.shared, tuple(self.shared.constants)
        kind = constants_type(names)
        self._constants = Table(kind, **shared.constants)
        job = Table(JOB, **{name: mujoco_function(name) for name in ADDRESSES})
        job.fill(**{name: shared.functions[name].address(kind) for name in FUNCTIONS})
        job.fill(
            frame_skip=shared.frame_skip,
            state_kind=int(PHYSICS),
            time_limit=shared.time_limit,
            contact_forces=int(shared.contact_forces),
            joints_only=int(shared.joints_only),
            constants=self._constants.address,
            counter=self._counter,
            simulations=addresses_of(self._simulations),
            physics=self.physics,
            observations=self.observations,
            before=self.before,
            returns=self.returns,
            lengths=self.lengths,
            stretches=self._stretches,
            chosen=self._chosen,
            room=np.zeros((self.threads, 2, 1), np.float32),
        )
        self._semaphores = [Semaphore() for _ in range(self.threads + 1)]
        begins = np.array([semaphore.address for semaphore in self._semaphores[:-1]], dtype=np.int64)
        job.fill(post=post_function(), look=look_function(), wait=wait_function(), give_way=give_way_function())
        job.fill(nap=nap_function(), busy=self.busy)
        job.fill(begins=begins, ends=self._semaphores[-1].address)
        return job

    def set_constants(self, constants: dict[str, float]) -> None:
        """Change the values of the task's constants."""
        self._constants.fill(**constants)

    @property
    def generators(self) -> Sequence[np.random.Generator]:
        """numpy's random generators, which first states are drawn from."""
        return tuple(self._generators)

    @generators.setter
    def generators(self, generators: Sequence[np.random.Generator]) -> None:
        self._generators = list(generators)
        self._generator_tables = [generator_table(generator) for generator in generators]
        self._job.fill(generators=addresses_of(self._generator_tables))

    def _run(self, work: int) -> None:
        if os.getpid() != self._process:  # a fork, which has no threads but the caller's
            self._work_alone()
        self._job.words[WORK] = work
        self._counter[0] = self._stretches[:] = 0
        with without_clock:
            self._kernel.lead(self._address)

    def _select(self, which: Sequence[int] | NDArray[np.intp]) -> None:
        self._chosen[:] = 0
        self._chosen[which] = 1

    def reset(self, which: Sequence[int] | NDArray[np.intp]) -> None:
        """Begin new episodes in some simulations."""
        self._select(which)
        self._run(RESET)

    def refresh(self, which: Sequence[int] | NDArray[np.intp]) -> None:
        """Bring observations and progress up to date in simulations whose physics was set."""
        self._select(which)
        self._run(REFRESH)

    def record(self, recording: Recording) -> None:
        """Write what happens in the next steps into this room."""
        if recording is not self._recording:
            self._job.fill(**vars(recording))
            self._recording = recording

    def take(self, controls: Array, single: bool) -> None:
        """Take steps with given actions: [steps, n, actuators]. `single`: they were given in single precision."""
        if controls is not self._job.kept.get("controls"):  # to step is fast
            self._job.fill(controls=controls)
        words = self._job.words
        words[ACTS], words[SINGLE], words[START], words[LAST] = 0, single, 0, len(controls)
        self._run(ROLL)

    def act(self, acting: Acting, noise: Floats, seen: Array, actions: Floats) -> None:
        """Let a policy take steps; `seen` and `actions` are filled in.

        A simulation stops before an action that is NaN, and nothing is recorded of its later steps: look for NaN first.

        noise: added to the policy's means, [steps, n, actuators]; seen and actions have as many steps.
        """
        room = np.empty((self.threads, 2, int(acting.widths.max())), np.float32)
        self._job.fill(acts=1, single=1, start=0, stop=len(noise), noise=noise, seen=seen, actions=actions, room=room)
        self._job.fill(**vars(acting))
        self._run(ROLL)

    def close(self) -> None:
        """End the threads; what is asked for later is done by the caller's own."""
        self._dismiss()
        if os.getpid() == self._process:
            for helper in self._helpers:
                helper.join()
        self._work_alone()

    def _work_alone(self) -> None:
        self._process = os.getpid()
        self._job.fill(simulations=addresses_of(self._simulations[:1]))


def help_with(kernel: Kernel, job: Table, semaphores: Sequence[Semaphore], thread: int) -> None:
    """Take part in one job after another until one says to stop; what these look at lives as long."""
    kernel.serve(job.address, thread)


def dismiss(job: Table, semaphores: Sequence[Semaphore]) -> None:
    """Tell threads that wait for jobs to end.

    Nobody waits for that here: a garbage collection may come while Python's own lock of threads is held.
    """
    job.fill(work=STOP)
    for semaphore in semaphores[1:-1]:
        semaphore.post()


def simulation_table(shared: Physics, data: mujoco.MjData) -> Table:
    """Make the table through which compiled code sees a simulation."""
    fields = {name: getattr(data, name) for name in OF_DATA} | {name: getattr(shared.model, name) for name in OF_MODEL}
    return Table(
        SIMULATION,
        model=shared.model._address,
        data=data._address,
        observation=np.zeros(shared.observation_size),  # elsewhere for each environment
        action=np.zeros(shared.model.nu),
        init_qpos=np.ascontiguousarray(shared.init_qpos, np.float64),
        init_qvel=np.ascontiguousarray(shared.init_qvel, np.float64),
        power=power_function(),
        fused=int(dot_is_fused()),
        **fields,
    )


def generator_table(generator: np.random.Generator) -> Table:
    """Make the table through which compiled code draws from a generator."""
    bits = generator.bit_generator.ctypes
    draw = ctypes.cast(bits.next_double, ctypes.c_void_p).value
    assert draw is not None
    assert bits.bit_generator.value is not None
    return Table(
        GENERATOR,
        next_double=draw,
        state=bits.state_address,
        next_normal=normal_function(),
        bits=bits.bit_generator.value,
    )

"""The kernel: one call takes environments through a whole rollout, or one step, or a reset, without the interpreter.

Threads share a job and take environments from its counter, for a stretch of steps each, so that hardly any waits. An
environment lives in its row of `physics` and of the other arrays; a thread loads it into its own simulation.
"""

from typing import Any

import numpy as np

from .calls import (
    address_of,
    call_double,
    call_int,
    call_nothing,
    call_word,
    data_of,
    next_index,
    seen_by_all,
    set_word,
    tell_all,
)
from .functions import SIMULATION, Floats, Simulation, helper, simulation_at
from .policy import forward
from .semaphores import FOREVER, NOW
from .tables import FLOAT, INT, Kind, TableType

RECORDED: dict[str, Kind] = {  # [steps, environments, ...]
    "controls": ("f8", 3),  # the actions to take, if no policy acts
    "noise": ("f4", 3),  # of the policy's actions
    "seen": ("f8", 3),  # what the policy saw: normalised observations
    "actions": ("f4", 3),  # what it answered, not yet within bounds
    "after": ("f8", 3),  # observations after each step; of a new episode where one has ended
    "rewards": ("f8", 2),
    "terminated": ("u1", 2),
    "truncated": ("u1", 2),
    "finals": ("f8", 3),  # of ended episodes, elsewhere undefined: last observation, return and length
    "final_returns": ("f8", 2),
    "final_lengths": ("i8", 2),
}
LIVING: dict[str, Kind] = {  # [environments, ...]: what goes on from job to job
    "physics": ("f8", 2),
    "observations": ("f8", 2),
    "before": ("f8", 1),
    "returns": ("f8", 1),
    "lengths": ("i8", 1),
    "generators": ("i8", 1),
    "stretches": ("i8", 1),  # of steps that each has behind it
    "chosen": ("u1", 1),  # which of them a reset or refresh is for
}
POLICY: dict[str, Kind] = {
    "acts": INT,  # 1 if the policy acts
    "weights": ("f4", 1),
    "widths": ("i8", 1),
    "kinds": ("i8", 1),
    "low": ("f4", 1),
    "high": ("f4", 1),
    "mean": ("f8", 1),
    "deviation": ("f8", 1),
    "clip": FLOAT,
    "room": ("f4", 3),  # [threads, 2, widest layer]
}
ADDRESSES = ("mj_step", "mj_forward", "mj_setState", "mj_getState", "mj_resetData", "mj_rnePostConstraint")
FUNCTIONS = ("observe", "progress", "reward", "ended", "reset")
STEPS = ("single", "start", "stop", "frame_skip", "state_kind", "time_limit", "contact_forces", "joints_only")
JOB = TableType(
    "Job",
    {
        **dict.fromkeys((*STEPS, *ADDRESSES, *FUNCTIONS), INT),
        "constants": INT,  # the address of the task's
        "work": INT,  # ROLL, RESET, REFRESH or STOP
        "counter": ("i8", 1),
        "simulations": ("i8", 1),  # a table for each thread
        "give_way": INT,  # lets other threads run
        "nap": INT,  # sleeps for some microseconds
        "busy": ("i8", 1),  # cores that something else needs for a while
        "post": INT,  # semaphores: functions, one for each thread to wait for a job, one to tell that it has ended
        "look": INT,
        "wait": INT,
        "begins": ("i8", 1),
        "ends": INT,
        **POLICY,
        **LIVING,
        **RECORDED,
    },
)
ROLL, RESET, REFRESH, STOP = 0, 1, 2, 3
OBSERVATION, SINGLE = SIMULATION.words["observation"], SIMULATION.words["single"]
STRETCH = 16  # steps of one environment before a thread takes on another: none waits long for the last in the end
NAP = 100  # microseconds
AWAKE = 10_000  # looks at a semaphore before a thread sleeps, some 200 microseconds

Job = Any  # a table of the kind JOB, whose entries compiled code reads as attributes


@helper
def look(job: Job, sim: Simulation, i: int) -> None:
    """Bring observation and progress of an environment up to date."""
    at = address_of(sim)
    set_word(at, OBSERVATION, data_of(job.observations) + 8 * i * job.observations.shape[1])
    call_nothing(job.observe, (at, job.constants))
    job.before[i] = call_double(job.progress, (at, job.constants))


@helper
def begin_episode(job: Job, sim: Simulation, i: int) -> None:
    """Begin a new episode."""
    at = address_of(sim)
    call_nothing(job.mj_resetData, (sim.model, sim.data))
    call_nothing(job.reset, (at, job.constants, job.generators[i]))
    if not job.joints_only:
        call_nothing(job.mj_forward, (sim.model, sim.data))
    look(job, sim, i)
    job.returns[i] = 0.0
    job.lengths[i] = 0


@helper
def act(job: Job, sim: Simulation, x: Floats, y: Floats, t: int, i: int) -> bool:
    """Let the policy act on the present observation; return whether its action is one, and not NaN."""
    seen, observation, mean, deviation = job.seen[t, i], job.observations[i], job.mean, job.deviation
    for j in range(len(observation)):
        scaled = min(max((observation[j] - mean[j]) / deviation[j], -job.clip), job.clip)
        seen[j] = scaled
        x[j] = np.float32(scaled)
    outputs = forward(job.weights, job.widths, job.kinds, x, y)
    actions, noise, action, valid = job.actions[t, i], job.noise[t, i], sim.action, True
    for j in range(len(action)):
        actions[j] = outputs[j] + noise[j]
        action[j] = min(max(actions[j], job.low[j]), job.high[j])
        valid = valid and not np.isnan(actions[j])
    return valid


@helper
def step(job: Job, sim: Simulation, t: int, i: int) -> None:
    """Take one step with the action that lies in the simulation; begin another episode where one ends."""
    at, control, action = address_of(sim), sim.ctrl, sim.action
    for j in range(len(action)):
        control[j] = action[j]
    for _ in range(job.frame_skip):
        call_nothing(job.mj_step, (sim.model, sim.data))
    if job.contact_forces:
        call_nothing(job.mj_rnePostConstraint, (sim.model, sim.data))
    earned = call_double(job.reward, (at, job.constants, job.before[i]))
    terminated = call_word(job.ended, (at, job.constants)) != 0
    look(job, sim, i)
    job.returns[i] += earned
    job.lengths[i] += 1
    truncated = job.lengths[i] >= job.time_limit
    job.rewards[t, i], job.terminated[t, i], job.truncated[t, i] = earned, terminated, truncated
    if terminated or truncated:
        job.finals[t, i, :] = job.observations[i]
        job.final_returns[t, i], job.final_lengths[t, i] = job.returns[i], job.lengths[i]
        begin_episode(job, sim, i)
    job.after[t, i, :] = job.observations[i]


@helper
def roll_one(job: Job, sim: Simulation, x: Floats, y: Floats, i: int, stretch: int) -> None:
    """Take one environment through one stretch of the steps, or to an action that is NaN."""
    first = job.start + stretch * STRETCH
    for t in range(first, min(first + STRETCH, job.stop)):
        if not job.acts:
            sim.action[:] = job.controls[t, i]
        elif not act(job, sim, x, y, t, i):
            return
        step(job, sim, t, i)


@helper
def wait(job: Job, semaphore: int) -> None:
    """Wait for a semaphore, at first awake: to be woken takes longer than the next step may be away.

    A signal that the process gets meanwhile ends no waiting.
    """
    for _ in range(AWAKE):
        if call_int(job.look, (semaphore, NOW)) == 0:
            return
    while call_int(job.wait, (semaphore, FOREVER)) != 0:
        pass


@helper
def hold_back(job: Job, thread: int, units: int) -> None:
    """Leave a core to what else needs it, as long as there is something left to do."""
    while thread > 0 and thread >= len(job.simulations) - seen_by_all(data_of(job.busy)):
        if seen_by_all(data_of(job.counter)) >= units:
            return
        call_int(job.nap, (NAP,))


@helper
def take_turn(job: Job, i: int, stretch: int) -> None:
    """Wait until an environment has come to a stretch: another thread may be on the one before it."""
    while seen_by_all(data_of(job.stretches) + 8 * i) < stretch:
        call_int(job.give_way, (0,))


@helper
def begin_or_look(job: Job, sim: Simulation, i: int) -> None:
    """Begin a new episode, or look at a state that was set."""
    if job.work == RESET:
        begin_episode(job, sim, i)
        return
    call_nothing(job.mj_forward, (sim.model, sim.data))
    if job.contact_forces:
        call_nothing(job.mj_rnePostConstraint, (sim.model, sim.data))
    look(job, sim, i)


@helper
def work(job: Job, thread: int) -> None:
    """Take on one environment after another for a stretch of steps each, until the counter has passed the last."""
    sim, x, y = simulation_at(job.simulations[thread]), job.room[thread, 0], job.room[thread, 1]
    set_word(address_of(sim), SINGLE, job.single)
    n = len(job.physics)
    stretches = (job.stop - job.start + STRETCH - 1) // STRETCH if job.work == ROLL else 1
    hold_back(job, thread, n * stretches)
    while True:
        number = next_index(data_of(job.counter))
        if number >= n * stretches:
            return
        i, stretch = number % n, number // n
        if job.work != ROLL and not job.chosen[i]:
            continue
        take_turn(job, i, stretch)
        row = data_of(job.physics) + 8 * i * job.physics.shape[1]
        call_nothing(job.mj_setState, (sim.model, sim.data, row, np.int32(job.state_kind)))
        if job.work == ROLL:
            roll_one(job, sim, x, y, i, stretch)
        else:
            begin_or_look(job, sim, i)
        call_nothing(job.mj_getState, (sim.model, sim.data, row, np.int32(job.state_kind)))
        tell_all(data_of(job.stretches) + 8 * i, stretch + 1)


def lead(job: Job) -> None:
    """Do a job, with the other threads; return when all have ended."""
    for thread in range(1, len(job.simulations)):
        call_word(job.post, (job.begins[thread],))
    work(job, 0)
    for _ in range(1, len(job.simulations)):
        wait(job, job.ends)


def serve(job: Job, thread: int) -> None:
    """Take part in one job after another, until one says to stop."""
    while True:
        wait(job, job.begins[thread])
        if job.work == STOP:
            return
        work(job, thread)
        call_word(job.post, (job.ends,))

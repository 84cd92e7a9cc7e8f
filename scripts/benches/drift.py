"""What carries a solved policy away: its own steps, or the normalisation under it.

A run with the default preset is continued in several ways from the same state: with the policy standing still or not,
its steps cautious (kfac/signal.py) or not, and the statistics of observations moving or not, followed by the networks'
first layers (agents/inputs.py) or not. Beside the return stand the instruments of the policy's steps.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from geonpg.agents import ACKTR
from geonpg.agents.inputs import InputFollower, follow
from geonpg.agents.state import get_state, set_state
from geonpg.agents.stepping import Stepper
from geonpg.agents.update_stats import UpdateStats
from geonpg.configs import load
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.runs.building import make_agent, make_env, normalization_of
from geonpg.scripts.runs.process import prepare

ENV_IDS, SEED = ("InvertedDoublePendulum-v4", "Swimmer-v5"), 2000
SOLVED, END = 200_000, 500_000  # steps before the ways part, and in all
AVERAGED = 100  # updates at the end whose instruments are averaged
STANDSTILL = 1e-12  # KL per update


@dataclass(frozen=True)
class Way:
    """One way in which a run goes on."""

    learns: bool = True  # whether the policy learns
    cautious: bool = True  # whether its steps are cautious
    moves: bool = True  # whether the normalisation moves
    follows: bool = True  # whether the first layers follow it


WAYS = {
    "as it is": Way(),
    "not cautious": Way(cautious=False),
    "not followed": Way(follows=False),
    "neither": Way(cautious=False, follows=False),
    "policy still, followed": Way(learns=False),
    "policy still, not followed": Way(learns=False, follows=False),
    "policy and normalisation still": Way(learns=False, moves=False),
}


class Reading(NamedTuple):
    """What the instruments show of one update, or medians over several."""

    kl: float  # between the policies before and after
    remembered: float  # KL that earlier batches would see of the step, over the predicted one
    alignment: float  # cosine to the last step
    confirmed: float  # the part of the last step's slope that this batch confirms
    share: float  # share of its full length that the step has earned
    advantage: float  # standard deviation of the advantages
    explained: float  # part of the returns' variance that the critic explains


class Drift(NamedTuple):
    """How one run went on."""

    before: float  # return when the ways part
    after: Mapping[str, tuple[float, Reading]]  # way -> return and instruments at the end


@dataclass(frozen=True)
class DriftFindings(Findings):
    """How runs went on in every way, by id."""

    drifts: Mapping[str, Drift]

    def numbers(self) -> Numbers:
        found = {}
        for env_id, drift in self.drifts.items():
            ways = {name: {"return": final, **reading._asdict()} for name, (final, reading) in drift.after.items()}
            found[env_id] = {"before": {"return": drift.before}, **ways}
        return {"drift": found}

    def table(self) -> str:
        lines = [
            f"default preset, seed {SEED}; the ways part after {SOLVED:,} of {END:,} steps; return of the last 100",
            f"training episodes, and medians of the last {AVERAGED} updates",
        ]
        for env_id, drift in self.drifts.items():
            lines += ["", f"{env_id:32}" + "".join(f"{name:>11}" for name in ("return", *Reading._fields))]
            lines.append(f"{'before':32}{drift.before:11.1f}")
            for name, (final, (kl, *others)) in drift.after.items():
                lines.append(f"{name:32}{final:11.1f}{kl:11.1e}" + "".join(f"{value:11.3f}" for value in others))
        return "\n".join(lines)


class Instruments:
    """What can be seen of the policy's steps while they are made."""

    def __init__(self, agent: ACKTR) -> None:
        self.agent, self.readings = agent, list[Reading]()
        self.place, self.average, self.step = parameters(agent), agent.optimizer.memory.gradient, Tensor()

    def read(self, update: UpdateStats) -> None:
        """Take a reading after an update."""
        agent, report = self.agent, update.report
        place, average, decay = parameters(agent), agent.optimizer.memory.gradient, agent.gradient_averaging
        step, confirmed, alignment = place - self.place, math.nan, math.nan
        if len(self.step) and average is not None and self.average is not None:
            fresh = (average - decay * self.average) / (1 - decay)
            claimed = self.average / (1 - decay ** max(update.n_updates - 1, 1)) @ self.step
            confirmed = float(fresh @ self.step / claimed)
            alignment = float(torch.cosine_similarity(step, self.step, dim=0))
        reading = Reading(
            kl=report.actual_kl,
            remembered=report.remembered_kl / report.predicted_kl,
            alignment=alignment,
            confirmed=confirmed,
            share=report.share,
            advantage=float(agent.rollout_buffer.advantages.std()),
            explained=update.explained_variance,
        )
        self.readings.append(reading)
        self.place, self.average, self.step = place, average, step

    def medians(self) -> Reading:
        """Return medians over the last updates: a ratio whose denominator may vanish has no mean."""
        columns = np.array(self.readings[-AVERAGED:]).T
        known = [column[np.isfinite(column)] for column in columns]
        return Reading(*(float(np.median(column)) if len(column) else math.nan for column in known))


def parameters(agent: ACKTR) -> Tensor:
    """Return the policy's parameters, flat."""
    return torch.cat([p.detach().flatten() for p in agent.networks.actor_parameters])


def train_on(stepper: Stepper, way: Way, steps: int) -> Instruments:
    """Train in this way up to so many steps."""
    agent = stepper.agent
    target, instruments = agent.target_kl, Instruments(agent)
    assert agent.env is not None
    normalization = normalization_of(agent.env)
    assert normalization is not None
    normalization.training = way.moves
    agent.target_kl = target if way.learns else STANDSTILL
    agent.optimizer.geometry = replace(agent.optimizer.geometry, cautious=way.cautious)
    while agent.num_timesteps < steps:
        stepper.roll()
        follower, agent.input_follower = agent.input_follower, InputFollower()
        instruments.read(stepper.update())  # of the policy's own step, before the first layers follow
        agent.input_follower = follower
        if way.follows:
            follow(agent.networks.first_layers, follower.due())
        else:
            follower.skip()
        instruments.place = parameters(agent)
    agent.target_kl, normalization.training = target, True
    return instruments


def mean_return(agent: ACKTR) -> float:
    """Return the mean return of the last hundred training episodes."""
    assert agent.ep_info_buffer is not None
    return float(np.mean([episode["r"] for episode in agent.ep_info_buffer]))


def measure_one(env_id: str, bar: "tqdm[None]") -> Drift:
    """Train on one id until the ways part, and then on in every way."""
    settings = load("default", env_id, {"steps": END})
    prepare(settings)
    agent = make_agent(settings, make_env(settings, env_id, settings.n_envs, SEED), SEED)
    stepper = Stepper(agent, END)
    train_on(stepper, WAYS["as it is"], SOLVED)
    before, state, after = mean_return(agent), deepcopy(get_state(agent)), {}
    bar.update()
    for name, way in WAYS.items():
        set_state(agent, deepcopy(state))
        instruments = train_on(stepper, way, END)
        after[name] = mean_return(agent), instruments.medians()
        bar.update()
    return Drift(before, after)


def measure() -> DriftFindings:
    """Measure every way on every id."""
    with tqdm(total=len(ENV_IDS) * (1 + len(WAYS)), desc="ways", leave=False, disable=None) as bar:
        return DriftFindings({env_id: measure_one(env_id, bar) for env_id in ENV_IDS})

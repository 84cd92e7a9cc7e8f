"""What carries a solved policy away: its own steps, or the normalisation under it.

A run by the default preset is continued in several ways from the same state: with the policy standing still or not,
its steps cautious (kfac/signal.py) or not, and the statistics of observations moving, followed by the networks' first
layers (agents/inputs.py) or not. Beside the return stand the instruments of the policy's steps.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from geonpg.agents import ACKTR
from geonpg.agents.inputs import InputFollower
from geonpg.agents.state import get_state, set_state
from geonpg.agents.stepping import Stepper
from geonpg.agents.update_stats import UpdateStats
from geonpg.configs import load
from geonpg.scripts.runs.building import make_agent, make_env, normalization_of
from geonpg.scripts.runs.process import prepare

TASKS, SEED = ("InvertedDoublePendulum-v4", "Swimmer-v5"), 2000
SOLVED, END = 200_000, 500_000  # steps before the ways part, and in all
AVERAGED = 100  # updates at the end whose instruments are averaged
STANDSTILL = 1e-12  # KL per update


@dataclass(frozen=True)
class Way:
    """How a run goes on."""

    learns: bool = True  # the policy
    cautious: bool = True  # and its steps
    moves: bool = True  # the normalisation
    follows: bool = True  # the first layers the normalisation


WAYS = {
    "as it is": Way(),
    "not cautious": Way(cautious=False),
    "not followed": Way(follows=False),
    "neither": Way(cautious=False, follows=False),
    "policy still, followed": Way(learns=False),
    "policy still, not followed": Way(learns=False, follows=False),
    "policy and normalisation still": Way(learns=False, moves=False),
}
INSTRUMENTS = ("return", "kl", "remembered", "alignment", "confirmed", "share", "advantage", "explained")


class Instruments:
    """What can be seen of the policy's steps while they are made."""

    def __init__(self, agent: ACKTR) -> None:
        self.agent, self.rows = agent, list[tuple[float, ...]]()
        self.place, self.average, self.step = parameters(agent), agent.optimizer.memory.gradient, Tensor()

    def read(self, update: UpdateStats) -> None:
        """After an update: its KL, the KL that earlier batches would see over that, the cosine to the last step, the
        part of that one's slope that this batch confirms, the share of its length, advantages, explained variance."""
        agent, buffer = self.agent, self.agent.rollout_buffer
        place, average, decay = parameters(agent), agent.optimizer.memory.gradient, agent.gradient_averaging
        step, confirmed, alignment = place - self.place, math.nan, math.nan
        if len(self.step) and average is not None and self.average is not None:
            fresh = (average - decay * self.average) / (1 - decay)
            claimed = self.average / (1 - decay ** max(update.n_updates - 1, 1)) @ self.step
            confirmed = float(fresh @ self.step / claimed)
            alignment = float(torch.cosine_similarity(step, self.step, dim=0))
        report, advantage, explained = update.report, float(buffer.advantages.std()), update.explained_variance
        remembered = report.remembered_kl / report.predicted_kl
        self.rows.append((report.actual_kl, remembered, alignment, confirmed, report.share, advantage, explained))
        self.place, self.average, self.step = place, average, step

    def summary(self) -> tuple[float, ...]:
        """Medians over the last updates: a share whose denominator may vanish has no mean."""
        columns = np.array(self.rows[-AVERAGED:]).T
        known = [column[np.isfinite(column)] for column in columns]
        return tuple(float(np.median(column)) if len(column) else math.nan for column in known)


def parameters(agent: ACKTR) -> Tensor:
    return torch.cat([p.detach().flatten() for p in agent.networks.actor_parameters])


def go_on(stepper: Stepper, way: Way, steps: int) -> Instruments:
    """Train on to so many steps."""
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
            follower.catch_up(agent.networks.first_layers)
        else:
            follower.skip()
        instruments.place = parameters(agent)
    agent.target_kl, normalization.training = target, True
    return instruments


def measure() -> dict[str, float]:
    results: dict[str, float] = {}
    with tqdm(total=len(TASKS) * (1 + len(WAYS)), desc="ways", leave=False, disable=None) as bar:
        for env_id in TASKS:
            settings = load("default", env_id, {"steps": END})
            prepare(settings)
            agent = make_agent(settings, make_env(settings, env_id, settings.n_envs, SEED), SEED)
            stepper = Stepper(agent, END)
            go_on(stepper, WAYS["as it is"], SOLVED)
            results[f"drift/{env_id}/before/return"] = mean_return(agent)
            state = deepcopy(get_state(agent))
            bar.update()
            for name, way in WAYS.items():
                set_state(agent, deepcopy(state))
                steps = go_on(stepper, way, END).summary()
                values = (mean_return(agent), *steps)
                results |= {f"drift/{env_id}/{name}/{key}": x for key, x in zip(INSTRUMENTS, values, strict=True)}
                bar.update()
    return results


def mean_return(agent: ACKTR) -> float:
    """Of the last hundred training episodes."""
    assert agent.ep_info_buffer is not None
    return float(np.mean([episode["r"] for episode in agent.ep_info_buffer]))


def table(results: Mapping[str, float]) -> str:
    lines = [
        f"default preset, seed {SEED}; the ways part after {SOLVED:,} of {END:,} steps; return of the last 100",
        f"training episodes, and medians of the last {AVERAGED} updates",
    ]
    for env_id in TASKS:
        lines += ["", f"{env_id:32}" + "".join(f"{name:>11}" for name in INSTRUMENTS)]
        lines.append(f"{'before':32}{results[f'drift/{env_id}/before/return']:11.1f}")
        for name in WAYS:
            values = [results[f"drift/{env_id}/{name}/{key}"] for key in INSTRUMENTS]
            lines.append(f"{name:32}{values[0]:11.1f}{values[1]:11.1e}" + "".join(f"{x:11.3f}" for x in values[2:]))
    return "\n".join(lines)

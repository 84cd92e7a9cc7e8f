"""What cheaper updates lose: variants of the critic and of the policy's curvature, paired on the same data.

Along training runs with the default preset, every variant of the critic is fitted to the same batches and predicts the
next one before it has seen it; and at several points every variant of the policy makes one update from the same state
and data, whose gain is measured on rollouts that it has not seen.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.utils import explained_variance
from tqdm import tqdm

from geonpg.agents import ACKTR
from geonpg.agents.batches import UpdateBatch, whole_batch
from geonpg.agents.inputs import follow
from geonpg.agents.stepping import Stepper
from geonpg.agents.updates import fit_critic
from geonpg.configs import load
from geonpg.kfac import NaturalGradient
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.benches.noise import PRESET, built, gains_at
from geonpg.scripts.common.intervals import Estimate, student
from geonpg.scripts.runs.process import prepare

ENV_IDS = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")
UPDATES, WARM_UP = 240, 20  # of a run; those in which nothing is measured
EVERY = 20  # updates between two looks at the policy
CRITICS = {  # steps per batch, iterations of each, and the part of the batch on which curvature is measured
    "2 x 3": (2, 3, 1),
    "1 x 6": (1, 6, 1),
    "1 x 6, half": (1, 6, 2),
    "1 x 6, quarter": (1, 6, 4),
    "1 x 4, half": (1, 4, 2),
    "1 x 3, half": (1, 3, 2),
}
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "whole": {"curvature_every": 1, "factors_every": 1},
    "half": {"curvature_every": 2, "factors_every": 1},
    "half, factors every 2": {"curvature_every": 2, "factors_every": 2},
    "quarter": {"curvature_every": 4, "factors_every": 1},
}


@dataclass(frozen=True)
class Savings:
    """What variants reached on one id, by name; entries of the same place belong to the same data."""

    critics: Mapping[str, Sequence[float]]  # explained variance of batches not seen yet
    policies: Mapping[str, Sequence[float]]  # held-out gain of one update
    milliseconds: Mapping[str, float]  # of the critics


@dataclass(frozen=True)
class SavingsFindings(Findings):
    """Savings by id."""

    savings: Mapping[str, Savings]

    def paired(self, values: Mapping[str, Sequence[float]], name: str) -> Estimate:
        """Return how much a variant differs from the first, by pairs, with its interval."""
        first = np.array(next(iter(values.values())))
        return student(np.array(values[name]) - first)

    def numbers(self) -> Numbers:
        found: dict[str, Any] = {}
        for env_id, one in self.savings.items():
            mine = found[env_id] = {"critic": {}, "policy": {}}
            for kind, values in (("critic", one.critics), ("policy", one.policies)):
                for name, reached in values.items():
                    gap = self.paired(values, name)
                    key = name.replace(", ", "-").replace(" ", "")
                    mine[kind][key] = {
                        "mean": float(np.mean(reached)),
                        "gap": gap.value,
                        "low": gap.low,
                        "high": gap.high,
                    }
        return {"savings": found}

    def table(self) -> str:
        lines = [
            f"means over {UPDATES - WARM_UP} updates of a run, and paired differences from the first, 95 % intervals"
        ]
        for env_id, one in self.savings.items():
            lines += ["", f"{env_id:24}{'unseen':>10}{'gap':>10}{'interval':>24}{'ms':>8}"]
            for values in (one.critics, one.policies):
                for name, reached in values.items():
                    gap = self.paired(values, name)
                    time_taken = f"{one.milliseconds[name]:8.2f}" if name in one.milliseconds else ""
                    interval = f"{gap.low:+.5f} to {gap.high:+.5f}"
                    lines.append(f"{name:24}{np.mean(reached):10.5f}{gap.value:+10.5f}{interval:>24}{time_taken}")
        return "\n".join(lines)


def unbiased_returns(stepper: Stepper) -> NDArray[np.float32]:
    """Return discounted sums of a rollout's rewards to its end, where values stand in: [environments x steps]."""
    buffer = stepper.agent.rollout_buffer
    kept = buffer.advantages.copy(), buffer.returns.copy(), buffer.gae_lambda
    values, last = buffer.values, stepper.agent.networks.values(np.asarray(stepper.agent._last_obs))
    buffer.gae_lambda = 1.0
    assert stepper.agent._last_episode_starts is not None
    buffer.compute_returns_and_advantage(last.detach(), stepper.agent._last_episode_starts)
    found = (buffer.advantages + values).swapaxes(0, 1).reshape(-1)
    buffer.advantages, buffer.returns, buffer.gae_lambda = kept
    return found


def fit(agent: ACKTR, batch: UpdateBatch, returns: NDArray[np.float32]) -> tuple[float, float]:
    """Return the variance that an agent's critic explains of a batch, fit it to that, and return the time that took."""
    values = agent.networks.critic(batch.inputs).detach().numpy().reshape(-1)
    explained = float(explained_variance(values, returns))
    start = time.perf_counter()
    fit_critic(agent.networks, agent.critic_optimizer, batch, agent.critic_updates, 0.5, 0.5, agent.ranks)
    return explained, time.perf_counter() - start


def critic_variant(env_id: str, updates: int, iterations: int, every: int) -> Stepper:
    """Make an agent whose critic is fitted in another way."""
    chosen = {"critic_updates": updates, "critic_cg_iterations": iterations}
    stepper = built(load("default", env_id, chosen), env_id, 10**6)
    optimizer = stepper.agent.critic_optimizer
    assert isinstance(optimizer, NaturalGradient)
    optimizer.curvature_every = every
    return stepper


def measure_one(env_id: str, bar: "tqdm[None]") -> Savings:
    """Train on one id; fit every critic to each batch, and compare the policies now and then."""
    prepare(load("default", env_id))
    made = {name: built(load("default", env_id, own), env_id, 10**6) for name, own in POLICIES.items()}
    made |= {name: critic_variant(env_id, *how) for name, how in CRITICS.items()}
    trunk = made[PRESET] = built(load("default", env_id), env_id, 10**6)
    made["unseen"] = built(load("default", env_id), env_id, 10**6)
    critics: dict[str, list[float]] = {name: [] for name in CRITICS}
    policies: dict[str, list[float]] = {name: [] for name in POLICIES}
    seconds: dict[str, list[float]] = {name: [] for name in CRITICS}
    for number in range(UPDATES):
        trunk.roll()
        returns = unbiased_returns(trunk)
        batch = whole_batch(trunk.agent.networks, trunk.agent.rollout_buffer)
        follower = trunk.agent.input_follower
        change = None if follower.followed is None or follower.latest is None else (follower.followed, follower.latest)
        for name in CRITICS:
            agent = made[name].agent
            explained, taken = fit(agent, batch, returns)
            follow(agent.networks.first_of(agent.networks.critic), change)
            if number >= WARM_UP:
                critics[name].append(explained)
                seconds[name].append(taken)
        trunk.update()
        if number >= WARM_UP and number % EVERY == 0:
            for name, gain in gains_at(made, POLICIES, number).items():
                policies[name].append(gain.held_out)
        bar.update()
    return Savings(critics, policies, {name: 1000 * statistics.median(taken) for name, taken in seconds.items()})


def measure() -> SavingsFindings:
    """Measure every variant on every id."""
    with tqdm(total=len(ENV_IDS) * UPDATES, desc="updates", leave=False, disable=None) as bar:
        return SavingsFindings({env_id: measure_one(env_id, bar) for env_id in ENV_IDS})

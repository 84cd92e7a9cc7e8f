"""Whether anything but finite numbers reaches a policy: the paper's six tasks, every rule, short and long steps.

In half of the runs the trust region is so wide that the learning rate alone limits the step.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor
from tqdm import tqdm

from geonpg.agents import ACKTR
from geonpg.agents.inputs import InputScale, input_scale, ratio_and_shift
from geonpg.agents.observations import flattened
from geonpg.configs import METHODS, load
from geonpg.errors import Refused
from geonpg.finite import BrokenEnvironment
from geonpg.kfac import NaturalGradient, TrustRegion
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.runs.building import make_agent, make_env, normalization_of
from geonpg.scripts.runs.process import prepare

ENV_IDS = (
    "HalfCheetah-v4",
    "Hopper-v4",
    "Reacher-v4",
    "Walker2d-v4",
    "InvertedPendulum-v4",
    "InvertedDoublePendulum-v4",
)
RATES = (0.003, 0.03, 0.3, 3.0)
STEPS, WIDE = 100_000, 10.0


class WatchedRun(NamedTuple):
    """What was seen of one run."""

    updates: int
    rejected: int  # updates that were not made
    largest_kl: float  # of an update, over the target
    wrong: str  # what must not happen; nothing if it did not


@dataclass(frozen=True)
class FiniteFindings(Findings):
    """What was seen of all runs."""

    runs: Sequence[WatchedRun]

    def numbers(self) -> Numbers:
        found = {
            "runs": len(self.runs),
            "updates": sum(run.updates for run in self.runs),
            "violations": sum(bool(run.wrong) for run in self.runs),
            "rejected": sum(run.rejected for run in self.runs),
            "largest_kl_over_target": max(run.largest_kl for run in self.runs),
        }
        return {"finite": found}

    def table(self) -> str:
        updates, rejected = (sum(run.updates for run in self.runs), sum(run.rejected for run in self.runs))
        violations, largest = sum(bool(run.wrong) for run in self.runs), max(run.largest_kl for run in self.runs)
        tasks = f"{len(ENV_IDS)} tasks, {', '.join(METHODS)}, learning rates {RATES}"
        return "\n".join(
            [
                f"{len(self.runs)} runs of {STEPS} steps: {tasks}",
                f"runs with a parameter, statistic or action that is not finite, or a KL above its limit: {violations}",
                f"updates {updates}, of which rejected {rejected}; largest KL {largest:.2f} of the target",
            ]
        )


@dataclass(frozen=True)
class Case:
    """The settings of one run; a `target_kl` of None is the preset's."""

    env_id: str
    method: str
    learning_rate: float
    target_kl: float | None = None


def cases() -> Iterator[Case]:
    """Yield every task with every rule and rate, by turns with the preset's trust region and a wide one."""
    for i, env_id in enumerate(ENV_IDS):
        for j, rate in enumerate(RATES):
            for method in METHODS:
                yield Case(env_id, method, rate, WIDE if (i + j) % 2 else None)


class Watch(BaseCallback):
    """A callback that checks every action, and after every update what is learnt; `wrong` says what it saw first."""

    model: ACKTR

    def __init__(self) -> None:
        super().__init__()
        self.wrong, self.updates, self.largest_kl = "", 0, 0.0
        self._before: tuple[Any, Tensor] | None = None
        self._scale: InputScale | None = None  # at the rollout's start

    def _expect(self, true: bool, otherwise: str) -> None:
        """Note the first thing that is wrong."""
        if not true and not self.wrong:
            self.wrong = otherwise

    def _on_step(self) -> bool:
        self._expect(bool(np.isfinite(self.locals["actions"]).all()), "an action is not finite")
        return not self.wrong

    def _on_rollout_end(self) -> None:
        """Remember what the policy said of this rollout."""
        networks, buffer = self.model.networks, self.model.rollout_buffer
        with torch.no_grad():
            inputs = networks.inputs(torch.as_tensor(flattened(buffer.observations)))
            self._before = inputs, networks.actor(inputs)

    def _on_rollout_start(self) -> None:
        if self._before is not None:
            self._look(*self._before)
        self._scale = input_scale(self.training_env)

    def _on_training_end(self) -> None:
        self._on_rollout_start()

    def _look(self, inputs: Any, z: Tensor) -> None:
        self.updates += 1
        for name, numbers in learnt(self.model):
            self._expect(bool(np.isfinite(numbers).all()), f"{name} is not finite")
        control, networks = self.model.optimizer.control, self.model.networks
        assert isinstance(control, TrustRegion)
        scale = input_scale(self.training_env)
        if self._scale is not None and scale is not None:  # the same observations are other numbers by now
            ratio, shift = ratio_and_shift(self._scale, scale, inputs)
            inputs = (inputs - shift) / ratio
        with torch.no_grad():
            kl = float(networks.family.kl(z, networks.actor(inputs)).mean())
        self.largest_kl = max(self.largest_kl, kl)
        # the optimiser measured it on the same batch, but may have summed in another order
        within = kl <= 1.001 * control.slack * control.max_kl
        self._expect(within, f"the policy moved by a KL of {kl:g}, and {control.max_kl:g} was asked for")


def learnt(agent: ACKTR) -> Iterator[tuple[str, Any]]:
    """Yield everything that training has changed, by name."""
    assert agent.env is not None
    for name, parameter in agent.policy.named_parameters():
        yield name, parameter.detach().numpy()
    normalization = normalization_of(agent.env)
    if normalization is not None:
        for name in ("observation", "return"):
            moments = getattr(normalization, f"{name}_moments")
            yield f"the mean of {name}s", moments.mean
            yield f"the variance of {name}s", moments.variance


def rejections(agent: ACKTR) -> int:
    """Count the updates of policy and critic that were not made."""
    critic = agent.critic_optimizer
    return agent.optimizer.rejected + (critic.rejected if isinstance(critic, NaturalGradient) else 0)


def train_case(case: Case, steps: int, **others: Any) -> tuple[Watch, ACKTR]:
    """Train with the default preset, the case's settings and others, and watch."""
    overrides = {"method": case.method, "learning_rate": case.learning_rate, **others}
    if case.target_kl is not None:
        overrides["target_kl"] = case.target_kl
    settings = load("default", case.env_id, overrides)
    prepare(settings)
    env = make_env(settings, case.env_id, settings.n_envs, seed=0)
    agent, watch = make_agent(settings, env, seed=0), Watch()
    try:
        agent.learn(steps, callback=watch)
    except (Refused, BrokenEnvironment) as error:  # how environments answer to such an action
        watch.wrong = str(error)
    env.close()
    return watch, agent


@contextmanager
def unheard(name: str) -> Iterator[None]:
    """Suppress this logger's warnings."""
    log = logging.getLogger(name)
    before = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(before)


def measure() -> FiniteFindings:
    """Train every case, and say on standard error what is wrong with which."""
    runs = list[WatchedRun]()
    for case in tqdm(list(cases()), desc="runs", leave=False, disable=None):
        with unheard("geonpg.kfac"):  # rejected steps are counted
            watch, agent = train_case(case, STEPS)
        if watch.wrong:
            tqdm.write(f"{case}: {watch.wrong}", file=sys.stderr)
        runs.append(WatchedRun(watch.updates, rejections(agent), watch.largest_kl / agent.target_kl, watch.wrong))
    return FiniteFindings(runs)

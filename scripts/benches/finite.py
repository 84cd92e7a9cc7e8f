"""Whether anything that is not a number reaches a policy: the paper's six tasks, every rule, short and long steps.

In half of the runs the trust region is so wide that the learning rate alone limits the step.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor
from tqdm import tqdm

from geonpg.agents import ACKTR
from geonpg.agents.inputs import InputScale, change, input_scale
from geonpg.agents.observations import flattened
from geonpg.configs import load
from geonpg.errors import Refused
from geonpg.finite import BrokenEnvironment
from geonpg.kfac import NaturalGradient, TrustRegion
from geonpg.scripts.runs.building import make_agent, make_env, normalization_of
from geonpg.scripts.runs.process import prepare

TASKS = ("HalfCheetah-v4", "Hopper-v4", "Reacher-v4", "Walker2d-v4", "InvertedPendulum-v4", "InvertedDoublePendulum-v4")
METHODS = ("ng", "mid", "geo", "geof")
RATES = (0.003, 0.03, 0.3, 3.0)
STEPS, WIDE = 100_000, 10.0


@dataclass(frozen=True)
class Case:
    """One run; `target_kl` is the preset's own if it is None."""

    task: str
    method: str
    learning_rate: float
    target_kl: float | None = None


def cases() -> Iterator[Case]:
    """Every task with every rule and rate, in turns with the preset's trust region and a wide one."""
    for i, task in enumerate(TASKS):
        for j, rate in enumerate(RATES):
            for method in METHODS:
                yield Case(task, method, rate, WIDE if (i + j) % 2 else None)


class Watch(BaseCallback):
    """Looks at every action, and after every update at all that is learnt; `wrong` says what it saw."""

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
            ratio, shift = change(self._scale, scale, inputs)
            inputs = (inputs - shift) / ratio
        with torch.no_grad():
            kl = float(networks.family.kl(z, networks.actor(inputs)).mean())
        self.largest_kl = max(self.largest_kl, kl)
        # the optimiser measured it on the same batch, but may have summed in another order
        within = kl <= 1.001 * control.slack * control.max_kl
        self._expect(within, f"the policy moved by a KL of {kl:g}, and {control.max_kl:g} was asked for")


def learnt(agent: ACKTR) -> Iterator[tuple[str, Any]]:
    """Everything that training has changed, by name."""
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
    """Updates of policy and critic that were not made."""
    critic = agent.critic_optimizer
    return agent.optimizer.rejected + (critic.rejected if isinstance(critic, NaturalGradient) else 0)


def run(case: Case, steps: int, **others: Any) -> tuple[Watch, ACKTR]:
    """Train by the default preset, with some other settings, and watch."""
    overrides = {"method": case.method, "learning_rate": case.learning_rate, **others}
    if case.target_kl is not None:
        overrides["target_kl"] = case.target_kl
    settings = load("default", case.task, overrides)
    prepare(settings)
    env = make_env(settings, case.task, settings.n_envs, seed=0)
    agent, watch = make_agent(settings, env, seed=0), Watch()
    try:
        agent.learn(steps, callback=watch)
    except (Refused, BrokenEnvironment) as error:  # how environments answer to such an action
        watch.wrong = str(error)
    env.close()
    return watch, agent


@contextmanager
def unheard(name: str) -> Iterator[None]:
    """Without this logger's warnings."""
    log = logging.getLogger(name)
    before = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(before)


def measure() -> dict[str, float]:
    violations, rejected, updates, largest = 0, 0, 0, 0.0
    todo = list(cases())
    for case in tqdm(todo, desc="runs", leave=False, disable=None):
        with unheard("geonpg.kfac"):  # rejected steps are counted below
            watch, agent = run(case, STEPS)
        if watch.wrong:
            violations += 1
            tqdm.write(f"{case}: {watch.wrong}", file=sys.stderr)
        rejected, updates = rejected + rejections(agent), updates + watch.updates
        largest = max(largest, watch.largest_kl / agent.target_kl)
    return {
        "finite/runs": float(len(todo)),
        "finite/updates": float(updates),
        "finite/violations": float(violations),
        "finite/rejected": float(rejected),
        "finite/largest_kl_over_target": largest,
    }


def table(results: dict[str, float]) -> str:
    runs, updates, violations, rejected, largest = results.values()
    return "\n".join(
        [
            f"{runs:.0f} runs of {STEPS} steps: {len(TASKS)} tasks, {', '.join(METHODS)}, learning rates {RATES}",
            f"runs with a parameter, statistic or action that is not finite, or a KL above its limit: {violations:.0f}",
            f"updates {updates:.0f}, of which rejected {rejected:.0f}; largest KL {largest:.2f} of the target",
        ]
    )

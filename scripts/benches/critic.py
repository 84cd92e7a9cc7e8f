"""Whether a critic fits better if its damping follows the gain ratio, as Levenberg's and Marquardt's does.

Along training runs every variant of the critic begins at several stages where the run's own critic is, and is fitted to
the same batches and targets from there; before it is fitted to a batch it predicts it. The gain ratio sees the batch
alone that a step is made from, so it may fit that batch and not the next one: both errors are measured.
"""

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from geonpg.agents import ACKTR
from geonpg.agents.batches import UpdateBatch, whole_batch
from geonpg.agents.inputs import Change, follow
from geonpg.agents.optimizers import natural_critic
from geonpg.agents.outputs import Networks
from geonpg.agents.settings import CriticSettings, settings_of
from geonpg.agents.stepping import Stepper
from geonpg.agents.updates import fit_critic
from geonpg.configs import load
from geonpg.kfac import RULES, Constant, Controller, Damping, LevenbergMarquardt, Nielsen
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.benches.savings import unbiased_returns
from geonpg.scripts.common.intervals import Array, Estimate, student
from geonpg.scripts.runs.building import make_agent, make_env
from geonpg.scripts.runs.process import prepare


@dataclass(frozen=True)
class Variant:
    """A way to fit the critic; everything else is as the preset has it.

    updates: per batch.
    damping: of every step, or of the first one if the control changes it.
    """

    updates: int
    damping: float
    control: Controller = field(default_factory=Constant)
    rule: str = "ng"

    @property
    def plain(self) -> bool:
        """Whether it goes straight, with a constant damping."""
        return self.rule == "ng" and isinstance(self.control, Constant)

    @property
    def solves(self) -> int:
        """Linear systems per batch, which are most of the cost; the correction of `geo` is one more per step."""
        return self.updates * (2 if self.rule == "geo" else 1)


@dataclass(frozen=True)
class Plan:
    """Where a preset's critic is looked at.

    seeds: of the runs; never those of a study.
    stages: updates before the variants begin.
    batches: that they are judged on from there.
    """

    seeds: Sequence[int]
    stages: Sequence[int]
    batches: int
    variants: Mapping[str, Variant]


ENV_IDS = ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4")
MARQUARDT, BOUNDED = LevenbergMarquardt(), LevenbergMarquardt(schedule=Nielsen(least=0.003))


PLANS = {  # the first variant is the preset's own
    "default": Plan(
        (2100, 2101, 2102),
        (100, 400),
        40,
        {
            **{f"{damping}": Variant(1, damping) for damping in (0.03, 0.003, 0.01, 0.1)},
            "0.03, twice": Variant(2, 0.03),
            "0.01, twice": Variant(2, 0.01),
            "0.003, geo": Variant(1, 0.003, rule="geo"),
            "LM ng": Variant(1, 0.03, MARQUARDT),
            "LM ng, at least 0.003": Variant(1, 0.03, BOUNDED),
            "LM geo": Variant(1, 0.03, MARQUARDT, "geo"),
            "LM geo from 0.3": Variant(1, 0.3, MARQUARDT, "geo"),
            "LM geo, at least 0.003": Variant(1, 0.03, BOUNDED, "geo"),
        },
    ),
    "large": Plan(
        (2100, 2101),
        (10, 40),
        8,
        {
            **{f"{damping}": Variant(4, damping) for damping in (0.03, 0.003, 0.01, 0.1)},
            "LM ng": Variant(4, 0.03, MARQUARDT),
            "LM geo": Variant(4, 0.03, MARQUARDT, "geo"),
            "LM geo, half": Variant(2, 0.03, MARQUARDT, "geo"),
        },
    ),
}


@dataclass(frozen=True)
class Fit:
    """How a variant did on a batch, or geometric means over several; errors are squared, over the targets' variance."""

    unseen: float  # error on a batch before it was fitted to it
    unbiased: float  # the same against discounted sums of rewards, which hardly depend on the run's own critic
    own: float  # error on a batch that it was just fitted to
    milliseconds: float  # of the processor's time
    damping: float  # of the next step


Fits = Mapping[str, Sequence[Fit]]  # id -> an entry for every seed and stage


@dataclass(frozen=True)
class CriticFindings(Findings):
    """How every variant of a preset did on every id."""

    plans: Mapping[str, Plan]
    fits: Mapping[str, Mapping[str, Fits]]  # preset -> variant

    def column(self, preset: str, variant: str, kind: str, env_id: str = "") -> Array:
        """Return one number of a variant wherever it was measured, or on one id."""
        fits = self.fits[preset][variant]
        chosen = [fits[env_id]] if env_id else fits.values()
        return np.array([getattr(fit, kind) for each in chosen for fit in each])

    def mean(self, preset: str, variant: str, kind: str) -> float:
        """Return the geometric mean of a number over all places."""
        return float(np.exp(np.log(self.column(preset, variant, kind)).mean()))

    def ratio(self, preset: str, variant: str, other: str, kind: str, env_id: str = "") -> Estimate:
        """Return how many times as large a number is as that of another variant, by pairs, with its interval."""
        ours, theirs = (self.column(preset, name, kind, env_id) for name in (variant, other))
        found = student(np.log(ours / theirs))
        return Estimate(np.exp(found.value), np.exp(found.low), np.exp(found.high))

    def rival(self, preset: str, variant: str) -> str:
        """Return the best constant damping at no higher cost: the best on these data, which favours it a little."""
        ways = self.plans[preset].variants
        fair = [name for name, way in ways.items() if way.plain and way.solves <= ways[variant].solves]
        return min(fair, key=lambda name: self.mean(preset, name, "unseen"))

    def ratios(self, preset: str, variant: str) -> dict[str, Estimate]:
        """Return the ratios of errors to those of the first variant, and on unseen batches to those of the rival."""
        first = next(iter(self.fits[preset]))
        tasks = {
            f"unseen/{env_id}": self.ratio(preset, variant, first, "unseen", env_id)
            for env_id in self.fits[preset][first]
        }
        errors = {f"{kind}/ratio": self.ratio(preset, variant, first, kind) for kind in ("unseen", "unbiased", "own")}
        return {**tasks, **errors, "unseen/rival": self.ratio(preset, variant, self.rival(preset, variant), "unseen")}

    def numbers(self) -> Numbers:
        found: dict[str, dict[str, dict[str, float]]] = {preset: {} for preset in self.fits}
        for preset, by_name in self.fits.items():
            for name in by_name:
                mine = {kind.name: self.mean(preset, name, kind.name) for kind in fields(Fit)}
                for key, ratio in self.ratios(preset, name).items():
                    mine |= ratio.numbers(key)
                found[preset][name.replace(", ", "-").replace(" ", "-")] = mine
        return {"critic": found}

    def table(self) -> str:
        lines = [
            "error on unseen batches over that of the first variant, by pairs, with 95 % intervals, and over that of",
            "the best constant damping at no higher cost; error on its own batches; milliseconds per batch; damping",
        ]
        for preset, by_name in self.fits.items():
            heads = [*next(iter(by_name.values())), "all", "all, over the best"]
            lines += ["", f"{preset:24}" + "".join(f"{head:>21}" for head in heads) + "    own     ms  damping"]
            for name in by_name:
                ratios = self.ratios(preset, name)
                shown = [ratio for key, ratio in ratios.items() if key.startswith("unseen/")]
                cells = "".join(f"{f'{r.value:.2f} ({r.low:.2f} to {r.high:.2f})':>21}" for r in shown)
                own, taken, damping = (self.mean(preset, name, kind) for kind in ("own", "milliseconds", "damping"))
                lines.append(f"{name:24}{cells}{own:7.3f}{taken:7.1f}{damping:9.1e}")
        return "\n".join(lines)


class Fitter:
    """A critic that begins where the agent's is and goes its own way."""

    def __init__(self, agent: ACKTR, variant: Variant) -> None:
        self.networks, self.updates, self.ranks = Networks(deepcopy(agent.policy)), variant.updates, agent.ranks
        settings = replace(settings_of(agent, CriticSettings), critic_updates=variant.updates)
        with torch.random.fork_rng():  # the run goes on as if nobody had looked
            self.optimizer = natural_critic(self.networks, settings, agent.ranks)
        self.optimizer.load_state_dict(agent.critic_optimizer.state_dict())
        self.optimizer.rule, self.optimizer.control = RULES[variant.rule], variant.control
        self.optimizer.next_damping = Damping(variant.damping, variant.damping)

    def fit(self, batch: UpdateBatch, unbiased: Tensor, change: Change | None) -> Fit:
        """Predict a batch, fit to it, and follow the change of its observations' normalisation."""
        assert isinstance(batch.inputs, Tensor)
        known = self.optimizer.forward(batch.inputs)
        assert known is not None
        start = time.process_time()
        fit_critic(self.networks, self.optimizer, replace(batch, critic=known), self.updates, 0.5, 0.5, self.ranks)
        taken = time.process_time() - start
        before, after = known.at.z, self.networks.critic(batch.inputs).detach()
        follow(self.networks.first_of(self.networks.critic), change)
        errors = error(before, batch.returns), error(before, unbiased), error(after, batch.returns)
        return Fit(*errors, 1000 * taken, self.optimizer.damping)


def error(values: Tensor, targets: Tensor) -> float:
    """Return the mean squared error of values [n, 1] over the variance of their targets [n]."""
    return float((values.squeeze(1) - targets).square().mean() / targets.var(correction=0))


def walk(stepper: Stepper, plan: Plan, bar: "tqdm[None]") -> dict[str, Fit]:
    """Go on with a run, and let every variant go along from here; return means over the batches."""
    agent = stepper.agent
    fitters = {name: Fitter(agent, variant) for name, variant in plan.variants.items()}
    found: dict[str, list[Fit]] = {name: [] for name in fitters}
    for _ in range(1 + plan.batches):
        stepper.roll()
        unbiased = torch.as_tensor(unbiased_returns(stepper))
        batch = whole_batch(agent.networks, agent.rollout_buffer)
        for name, fitter in fitters.items():
            found[name].append(fitter.fit(batch, unbiased, replace(agent.input_follower).due()))
        stepper.update()
        bar.update()
    return {name: averaged(fits[1:]) for name, fits in found.items()}  # before the first they are all the same


def averaged(fits: Sequence[Fit]) -> Fit:
    """Return the geometric mean of every number, lest a batch whose targets hardly vary outweigh all others."""
    return Fit(*(float(np.exp(np.log([getattr(fit, kind.name) for fit in fits]).mean())) for kind in fields(Fit)))


def measure_one(preset: str, plan: Plan, bar: "tqdm[None]") -> dict[str, dict[str, list[Fit]]]:
    """Measure every variant of a preset, on every id."""
    found: dict[str, dict[str, list[Fit]]] = {name: {env_id: [] for env_id in ENV_IDS} for name in plan.variants}
    for env_id in ENV_IDS:
        settings = load(preset, env_id)
        prepare(settings)
        for seed in plan.seeds:
            agent = make_agent(settings, make_env(settings, env_id, settings.n_envs, seed), seed)
            stepper = Stepper(agent, settings.steps)
            for stage in plan.stages:
                while agent.n_updates < stage:
                    stepper.step()
                    bar.update()
                for name, fit in walk(stepper, plan, bar).items():
                    found[name][env_id].append(fit)
    return found


def measure() -> CriticFindings:
    """Measure every variant of every preset."""
    updates = [len(plan.seeds) * (plan.stages[-1] + 1 + plan.batches) for plan in PLANS.values()]
    with tqdm(total=len(ENV_IDS) * sum(updates), desc="updates", leave=False, disable=None) as bar:
        return CriticFindings(PLANS, {preset: measure_one(preset, plan, bar) for preset, plan in PLANS.items()})

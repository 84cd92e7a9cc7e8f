"""How much of an update's gain is real: the surrogate on the batch that made the update, and on held-out data.

At several points of a training run with the default preset, every variant makes one update from the same state and
data. Its gain is measured on that batch, which flatters it, and on many rollouts of the same policy that it has not
seen.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from geonpg.agents.state import get_state, set_state
from geonpg.agents.stepping import Stepper
from geonpg.configs import Settings, load
from geonpg.scripts.benches.findings import Findings, Numbers
from geonpg.scripts.branches.held_out import held_out, update
from geonpg.scripts.common.intervals import Estimate, bootstrap, mean
from geonpg.scripts.runs.building import make_agent, make_env
from geonpg.scripts.runs.process import prepare

ENV_IDS, SEED = ("HalfCheetah-v4", "Walker2d-v4"), 2000
CHECKPOINTS, EVERY = 10, 30_000  # steps between them
HELD_OUT = 64  # rollouts
PRESET = "preset"
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    PRESET: {},
    "one-batch": {"gradient_averaging": 0.0},
    "preset-kl-0.01": {"target_kl": 0.01},
    "one-batch-kl-0.01": {"gradient_averaging": 0.0, "target_kl": 0.01},
    "one-batch-pcg": {"gradient_averaging": 0.0, "solver": "pcg"},
}


class Gain(NamedTuple):
    """The surrogate gain of one update, in deviations of the advantage."""

    own: float  # on the batch that made it
    held_out: float


@dataclass(frozen=True)
class NoiseFindings(Findings):
    """The gains of every variant's updates, one per checkpoint of a run."""

    gains: Mapping[str, Mapping[str, Sequence[Gain]]]  # id -> variant

    def estimate(self, env_id: str, variant: str, kind: str) -> Estimate:
        """Return the mean gain with its interval; `kind` is "own" or "held_out"."""
        return bootstrap(mean, [np.array([getattr(gain, kind) for gain in self.gains[env_id][variant]])])

    def numbers(self) -> Numbers:
        found: dict[str, dict[str, dict[str, float]]] = {env_id: {} for env_id in self.gains}
        for env_id, variants in self.gains.items():
            for variant in variants:
                mine = found[env_id][variant] = {}
                for kind in Gain._fields:
                    mine |= self.estimate(env_id, variant, kind).numbers(kind)
        return {"noise": found}

    def table(self) -> str:
        lines = [
            f"surrogate gain of one update, in deviations of the advantage; means over {CHECKPOINTS} checkpoints, 95 %",
            f"intervals; held out: {HELD_OUT} rollouts of the same policy",
        ]
        for env_id, variants in self.gains.items():
            lines += ["", f"{env_id:24}{'own batch':>10}{'held out':>10}{'interval':>20}"]
            for name in variants:
                own, unseen = (self.estimate(env_id, name, kind) for kind in Gain._fields)
                interval = f"{unseen.low:.4f} to {unseen.high:.4f}"
                lines.append(f"{name:24}{own.value:10.4f}{unseen.value:10.4f}{interval:>20}")
        return "\n".join(lines)


def built(settings: Settings, env_id: str, steps: int) -> Stepper:
    """Make an agent with its environments, ready to be updated step by step."""
    agent = make_agent(settings, make_env(settings, env_id, settings.n_envs, SEED), SEED)
    return Stepper(agent, steps)


def gains_at(steppers: Mapping[str, Stepper], variants: Iterable[str], number: int) -> dict[str, Gain]:
    """Update every variant from the trunk's present state."""
    state = get_state(steppers[PRESET].agent)
    set_state(steppers["unseen"].agent, deepcopy(state))
    unseen = held_out(steppers["unseen"], HELD_OUT, seed=1000 * SEED + number)
    state, found = deepcopy(state), {}
    for name in variants:
        agent = steppers[name].agent
        set_state(agent, deepcopy(state))
        own = update(steppers[name])
        own = replace(own, advantages=agent.scaled(own.advantages))
        found[name] = Gain(own.gain(agent), unseen.gain(agent))
    set_state(steppers[PRESET].agent, state)
    return found


def measure_one(env_id: str, bar: "tqdm[None]") -> dict[str, list[Gain]]:
    """Train on one id, and update every variant at each checkpoint."""
    settings = {name: load("default", env_id, chosen) for name, chosen in VARIANTS.items()}
    prepare(settings[PRESET])
    steps = settings[PRESET].steps
    steppers = {name: built(chosen, env_id, steps) for name, chosen in settings.items()}
    steppers["unseen"] = built(settings[PRESET], env_id, steps)
    found: dict[str, list[Gain]] = {name: [] for name in VARIANTS}
    for number in range(1, CHECKPOINTS + 1):
        while steppers[PRESET].agent.num_timesteps < number * EVERY:
            steppers[PRESET].step()
        for name, gain in gains_at(steppers, VARIANTS, number).items():
            found[name].append(gain)
        bar.update()
    return found


def measure() -> NoiseFindings:
    """Measure every variant on every id."""
    with tqdm(total=len(ENV_IDS) * CHECKPOINTS, desc="checkpoints", leave=False, disable=None) as bar:
        return NoiseFindings({env_id: measure_one(env_id, bar) for env_id in ENV_IDS})

"""How much of an update's gain is real: the surrogate on the batch that made the update, and on data held out.

At several points of a training run by the default preset, every variant makes one update from the same state and data;
its gain is measured on that batch, which flatters it, and on many rollouts of the same policy that it has not seen.
"""

from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from tqdm import tqdm

from geonpg.agents.state import get_state, set_state
from geonpg.agents.stepping import Stepper
from geonpg.configs import Settings, load
from geonpg.scripts.branches.held_out import held_out, update
from geonpg.scripts.common.intervals import bootstrap, mean
from geonpg.scripts.runs.building import make_agent, make_env
from geonpg.scripts.runs.process import prepare

TASKS, SEED = ("HalfCheetah-v4", "Walker2d-v4"), 2000
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


def built(settings: Settings, env_id: str, steps: int) -> Stepper:
    agent = make_agent(settings, make_env(settings, env_id, settings.n_envs, SEED), SEED)
    return Stepper(agent, steps)


def gains(steppers: Mapping[str, Stepper], number: int) -> dict[str, tuple[float, float]]:
    """Gains of every variant from the trunk's present state: on its own batch, and held out."""
    state = get_state(steppers[PRESET].agent)
    set_state(steppers["unseen"].agent, deepcopy(state))
    unseen = held_out(steppers["unseen"], HELD_OUT, seed=1000 * SEED + number)
    state, found = deepcopy(state), {}
    for name in VARIANTS:
        agent = steppers[name].agent
        set_state(agent, deepcopy(state))
        own = update(steppers[name])
        own = replace(own, advantages=agent.scaled(own.advantages))
        found[name] = own.gain(agent), unseen.gain(agent)
    set_state(steppers[PRESET].agent, state)
    return found


def measure() -> dict[str, float]:
    samples: dict[str, list[float]] = defaultdict(list)
    with tqdm(total=len(TASKS) * CHECKPOINTS, desc="checkpoints", leave=False, disable=None) as bar:
        for env_id in TASKS:
            settings = {name: load("default", env_id, chosen) for name, chosen in VARIANTS.items()}
            prepare(settings[PRESET])
            steps = settings[PRESET].steps
            steppers = {name: built(chosen, env_id, steps) for name, chosen in settings.items()}
            steppers["unseen"] = built(settings[PRESET], env_id, steps)
            for number in range(1, CHECKPOINTS + 1):
                while steppers[PRESET].agent.num_timesteps < number * EVERY:
                    steppers[PRESET].step()
                for name, (own, unseen) in gains(steppers, number).items():
                    samples[f"noise/{env_id}/{name}/own"].append(own)
                    samples[f"noise/{env_id}/{name}/held_out"].append(unseen)
                bar.update()
    results: dict[str, float] = {}
    for name, values in samples.items():
        found = bootstrap(mean, [np.array(values)])
        results |= {name: float(found.value), f"{name}/low": float(found.low), f"{name}/high": float(found.high)}
    return results


def table(results: Mapping[str, float]) -> str:
    lines = [
        f"surrogate gain of one update, in deviations of the advantage; means over {CHECKPOINTS} checkpoints, 95 %",
        f"intervals; held out: {HELD_OUT} rollouts of the same policy",
    ]
    for env_id in TASKS:
        lines += ["", f"{env_id:24}{'own batch':>10}{'held out':>10}{'interval':>20}"]
        for name in VARIANTS:
            own, unseen = (results[f"noise/{env_id}/{name}/{kind}"] for kind in ("own", "held_out"))
            low, high = (results[f"noise/{env_id}/{name}/held_out/{end}"] for end in ("low", "high"))
            lines.append(f"{name:24}{own:10.4f}{unseen:10.4f}{f'{low:.4f} to {high:.4f}':>20}")
    return "\n".join(lines)

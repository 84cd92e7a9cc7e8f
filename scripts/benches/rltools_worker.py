"""RLtools' PPO on one of gymnasium's environments: a process that trains when it is asked to.

`python -m geonpg.scripts.benches.rltools_worker HalfCheetah-v4` compiles RLtools' loop, which takes a C++ compiler, and
answers by a line of JSON; each number of updates that it then reads is answered when they are done. It is a process of
its own because RLtools with MKL refuses to start where torch was imported.
"""

import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import count
from typing import Any

import gymnasium

SEED = 0
ENDLESS = 1_000_000_000  # steps of the whole run, which never comes to its end
SIZES = ("N_ENVIRONMENTS", "ON_POLICY_RUNNER_STEPS_PER_ENV")  # their product is the steps of an update


def factory(env_id: str) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Return the function that makes one environment after another, with seeds of their own.

    No wrapper is put around them: RLtools wants actions from -1 to 1, as these tasks have them, and MuJoCo clips.
    """
    seeds = count(SEED)

    def make() -> gymnasium.Env[Any, Any]:
        env = gymnasium.make(env_id)
        env.reset(seed=next(seeds))
        return env

    return make


def compiled(env_id: str) -> tuple[Any, int]:
    """Compile the loop with RLtools' defaults; return its state, and the steps of an update."""
    ppo = import_module("rltools").PPO
    if sys.platform == "linux":  # without MKL it would start too, and be slow
        for package in ("mkl", "mkl-include"):
            version(package)
    defaults = inspect.signature(ppo).parameters
    envs, steps = (defaults[name].default for name in SIZES)
    loop = ppo(factory(env_id), interface_name="geonpg", enable_evaluation=False, TOTAL_STEP_LIMIT=ENDLESS)
    return loop.State(SEED), envs * steps


def main(argv: Sequence[str]) -> int:
    """Compile, then train as often as the input says."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # RLtools, its compiler and MuJoCo print what they like
    try:
        state, size = compiled(argv[0])
    except Exception as error:  # whatever it is, the benchmark goes on without us
        print(json.dumps({"error": f"{type(error).__name__}: {error}".splitlines()[0]}), file=answers)
        return 1
    print(json.dumps({"steps": 0, "cpu": time.process_time()}), file=answers)
    for line in sys.stdin:
        updates = int(line)
        for _ in range(updates):
            state.step()
        print(json.dumps({"steps": updates * size, "cpu": time.process_time()}), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

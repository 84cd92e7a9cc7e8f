"""RLtools' PPO on one of gymnasium's environments: a process that trains, and acts, when it is asked to.

`python -m geonpg.scripts.races.rltools_worker HalfCheetah-v4 0` compiles RLtools' loop for this id and seed, which
takes a C++ compiler, and answers by a line of JSON. Each line that it then reads is answered by another:
{"begin": true} makes the environments and the agent, {"train": 2} makes so many updates, and {"act": [[...], ...]}
asks for the deterministic actions, from -1 to 1, after these observations. It is a process of its own because RLtools
with MKL refuses to start where torch was imported.
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
import numpy as np

ENDLESS = 1_000_000_000  # steps of the whole run, which never comes to its end
SIZES = ("N_ENVIRONMENTS", "ON_POLICY_RUNNER_STEPS_PER_ENV")  # their product is the steps of an update


def factory(env_id: str, seed: int) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Return the function that makes one environment after another, with seeds of their own.

    RLtools wants actions from -1 to 1, which are scaled where a task has others; it draws them from a normal without
    bounds, so they are clipped, as its authors do in their examples and as everyone else's are.
    """
    seeds = count(seed)

    def make() -> gymnasium.Env[Any, Any]:
        env = gymnasium.make(env_id)
        space = env.action_space
        assert isinstance(space, gymnasium.spaces.Box)
        if not (np.allclose(space.low, -1) and np.allclose(space.high, 1)):
            env = gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
        # gymnasium's ClipAction would say that the space has no bounds, which RLtools refuses
        env = gymnasium.wrappers.TransformAction(env, lambda action: np.clip(action, -1, 1), env.action_space)
        env.reset(seed=next(seeds))
        return env

    return make


class Worker:
    """RLtools' loop, compiled with its defaults, and what it does on request."""

    def __init__(self, env_id: str, seed: int) -> None:
        ppo = import_module("rltools").PPO
        if sys.platform == "linux":  # without MKL it would start too, and be slow
            for package in ("mkl", "mkl-include"):
                version(package)
        defaults = inspect.signature(ppo).parameters
        envs, steps = (defaults[name].default for name in SIZES)
        made = factory(env_id, seed)
        self.loop = ppo(made, interface_name="geonpg", enable_evaluation=False, TOTAL_STEP_LIMIT=ENDLESS)
        self.seed, self.update_steps = seed, envs * steps
        self.state: Any = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked for, and say what came of it."""
        if "begin" in request:
            self.state = self.loop.State(self.seed)
        for _ in range(request.get("train", 0)):
            self.state.step()
        actions = [self.state.action(np.array(row, np.float32)).tolist() for row in request.get("act", ())]
        return {"steps": request.get("train", 0) * self.update_steps, "cpu": time.process_time(), "actions": actions}


def main(argv: Sequence[str]) -> int:
    """Compile, then do what the input asks for, line by line."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # RLtools, its compiler and MuJoCo print what they like
    try:
        worker = Worker(argv[0], int(argv[1]))
        print(json.dumps(worker.answer({})), file=answers)
        for line in sys.stdin:
            print(json.dumps(worker.answer(json.loads(line))), file=answers)
    except Exception as error:  # whatever it is, an environment's own too, the others go on without us
        print(json.dumps({"error": f"{type(error).__name__}: {error}".splitlines()[0]}), file=answers)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""One run of a baseline, PPO, A2C or TRPO, in one folder: the same environments, evaluations and files as ours.

`geonpg compare` starts it. It resumes after a kill bit for bit, as our own runs do (see run.py).
"""

from geonpg.errors import Refused
import logging
import math
import shlex
import sys
import time
import tomllib
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from geonpg.agents.checkpoint import CheckpointError, Checkpoints, OtherRun, expecting
from geonpg.finite import BrokenEnvironment
from geonpg.agents.forms import misfit
from geonpg.agents.state import form_of, get_state, set_state
from geonpg.configs import FIELDS, Settings, parse_toml, shown
from geonpg.scripts.runs import folder as records
from geonpg.scripts.runs import baseline_settings as zoo
from geonpg.scripts.runs.building import ACTIVATIONS, evaluate, make_env, normalization_of, policy_for, prepare
from geonpg.scripts.common.parser import Parser, count, seed
from geonpg.scripts.runs.facts import create, facts_of, inode, require_home, warn_of_changes
from geonpg.scripts.common.locks import alone
from geonpg.scripts.runs.folder import FINAL_EPISODES, HISTORY, TIMES, Stopped, recorded_env, require_state, write_tables
from geonpg.scripts.common.stopping import listening

CURVE_STEPS = 10_000  # at least, between two rows of the learning curve
# Columns of the learning curve, by what the algorithms log; what one of them does not log is not a number.
LOGGED = {
    "kl": ("train/approx_kl", "train/kl_divergence_loss"),
    "entropy": ("train/entropy_loss",),
    "explained_variance": ("train/explained_variance",),
    "value_loss": ("train/value_loss",),
}
BUDGET = ("steps", "eval_every", "eval_episodes", "torch_threads", "env_threads")


def config_of(algorithm: str, settings: str, env_id: str, budget: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that a run's config.toml says. `budget`: those of BUDGET that are not at our own defaults."""
    ours = Settings(**budget)
    shared = {key: getattr(ours, key) for key in BUDGET}
    return {"algorithm": algorithm, "settings": settings, **zoo.settings_of(algorithm, settings, env_id), **shared}


@dataclass(frozen=True)
class Baseline:
    """What a baseline's run is, before it has done anything."""

    env_id: str
    seed: int
    config: Mapping[str, Any]

    @property
    def settings(self) -> Settings:
        """Those of its environments and evaluations, in our terms."""
        config = self.config
        shared = {key: config[key] for key in ("n_envs", "gamma", *BUDGET)}
        return Settings(normalize_observations=config["normalize"], normalize_rewards=config["normalize"], **shared)

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with."""
        return {**self.config, "env": self.env_id, "seed": self.seed}

    def make_agent(self, env: VecEnv) -> OnPolicyAlgorithm:
        config, algorithm = self.config, self.config["algorithm"]
        policy = {key: config[key] for key in zoo.POLICY if key in config}
        if "hidden" in policy:
            hidden = policy.pop("hidden")
            policy["net_arch"] = {"pi": list(hidden), "vf": list(hidden)}
        if "activation" in policy:
            policy["activation_fn"] = ACTIVATIONS[policy.pop("activation")]
        other = ("algorithm", "settings", "n_envs", "normalize", *zoo.POLICY, *BUDGET)
        keywords = {key: value for key, value in config.items() if key not in other}
        make: Callable[..., OnPolicyAlgorithm] = zoo.class_of(algorithm)
        name = policy_for(env.observation_space)
        return make(name, env, seed=self.seed, device="cpu", policy_kwargs=policy, **keywords)


def begin(plan: Baseline, folder: Path) -> "BaselineRun":
    if folder.exists():
        raise Refused(f"{folder} exists: go on with it by --resume {shlex.quote(str(folder))}")
    new = BaselineRun(plan, folder)
    config = "".join(f"{key} = {shown(value)}\n" for key, value in plan.config.items())
    _, package = zoo.ALGORITHMS[plan.config["algorithm"]]
    made_by = f"{package} {version(package)}"
    create(folder, config, {"env": plan.env_id, "seed": plan.seed, "device": "cpu", "package": made_by})
    return new


def resume(folder: Path, env_id: str | None = None) -> "BaselineRun":
    """The run in a folder, at its last good checkpoint; `env_id` as the user names it, which must be the run's own."""
    facts = facts_of(folder)
    recorded_env(facts.env, env_id, folder)
    try:
        config = parse_toml((folder / "config.toml").read_text(encoding="utf-8"))
        resumed = BaselineRun(Baseline(facts.env, facts.seed, config), folder)
    except (OSError, KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        raise Refused(f"{folder} is no run folder of a baseline: {error}") from None
    if resumed.checkpoints.latest(resumed.restore) is None:
        require_state(folder)
    warn_of_changes(facts)
    for leftover in folder.glob(".*.tmp"):
        leftover.unlink()
    return resumed


class BaselineRun:
    """A plan, an agent of SB3's, and what has come of them so far."""

    def __init__(self, plan: Baseline, folder: Path) -> None:
        self.plan, self.folder, self.settings = plan, folder, plan.settings
        prepare(self.settings)
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.env = make_env(self.settings, plan.env_id, self.settings.n_envs, plan.seed)
        self.agent = plan.make_agent(self.env)
        self.agent.set_logger(Logger(folder=None, output_formats=[]))
        self.curve: list[list[float]] = []
        self.evaluations: list[list[Any]] = []
        self.times: list[list[float]] = []
        self.seconds = dict.fromkeys(TIMES[1:], 0.0) | dict.fromkeys(("values", "critic"), float("nan"))

    @property
    def steps(self) -> int:
        return int(self.agent.num_timesteps)

    @property
    def is_complete(self) -> bool:
        """Whether the last evaluation was made, after which comes the last checkpoint."""
        return self.steps >= self.settings.steps and bool(self.evaluations) and self.evaluations[-1][0] == self.steps

    @property
    def owes_evaluation(self) -> bool:
        """Whether an evaluation is due, after an update or because it was interrupted."""
        return self.steps >= (self.evaluations[-1][0] if self.evaluations else 0) + self.settings.eval_every

    def restore(self, path: Path, state: dict[str, Any]) -> None:
        if state.get("identity") != self.plan.identity:
            raise OtherRun(f"{path} belongs to another run, or {self.folder / 'config.toml'} was changed")
        with expecting(path):
            history = {name: state[name] for name in HISTORY}
            wrong = misfit(state["agent"], form_of(self.agent, state["agent"]), "agent") or misfit(
                history, HISTORY, "history"
            )
            if wrong:
                raise CheckpointError(f"{path} is not of this version: {wrong}")
            if not set_state(self.agent, state["agent"]):
                logging.warning("these environments cannot be restored: they begin new episodes")
        self.curve, self.evaluations, self.times = history["curve"], history["evaluations"], history["times"]
        self.seconds = history["seconds"]

    def save(self) -> None:
        history = {"curve": self.curve, "evaluations": self.evaluations, "times": self.times, "seconds": self.seconds}
        state = {"agent": get_state(self.agent), "identity": self.plan.identity, **history}
        self.checkpoints.save(self.steps, state)

    def train(self, stop: Callable[[], bool]) -> None:
        """To the end, or until `stop()`."""
        keeper = Keeper(self, stop)
        if (left := self.settings.steps - self.steps) > 0:
            self.agent.learn(left, callback=keeper, reset_num_timesteps=self.steps == 0)
        keeper.after_update(final=True)
        self.env.close()

    def write_results(self) -> None:
        write_tables(self.folder, self.curve, self.evaluations, self.times)

    def evaluate(self, episodes: int, stop: Callable[[], bool]) -> bool:
        """Whether it came to its end before `stop()`; otherwise there is no trace of it."""
        plan, like, watch = self.plan, normalization_of(self.env), records.stopping_at(stop)
        try:
            returns, _ = evaluate(self.agent, self.settings, plan.env_id, episodes, like, plan.seed, watch)
        except Stopped:
            return False
        self.evaluations.append([self.steps, float(returns.mean()), float(returns.std()), returns.tolist()])
        return True

    def curve_row(self) -> list[float]:
        episodes, values = self.agent.ep_info_buffer or (), self.agent.logger.name_to_value
        means = [float(np.mean([e[key] for e in episodes])) if episodes else float("nan") for key in ("r", "l")]
        logged = {
            column: next((float(values[key]) for key in keys if key in values), float("nan"))
            for column, keys in LOGGED.items()
        }
        logged["entropy"] *= -1  # the loss is its negative
        return [self.steps, *means, *logged.values(), float("nan")]


class Keeper(BaseCallback):
    """Looks after a run between updates: curve, evaluations, times, checkpoints, stopping."""

    def __init__(self, kept: BaselineRun, stop: Callable[[], bool]) -> None:
        super().__init__()
        self.run, self.stop = kept, stop
        self.clock = time.perf_counter()
        self.saved = -math.inf if kept.steps == 0 else self.clock  # a checkpoint comes before the first results
        self.home = inode(kept.folder)
        self.fresh = True  # no update has been made since the run was begun or restored

    def spend(self, phase: str) -> None:
        """The time since the last call went into this."""
        now = time.perf_counter()
        self.run.seconds[phase] += now - self.clock
        self.run.seconds["seconds"] += now - self.clock
        self.clock = now

    def _on_rollout_start(self) -> None:
        if not self.fresh or self.run.owes_evaluation:
            self.after_update()
        self.fresh = False
        self.clock = time.perf_counter()

    def _on_rollout_end(self) -> None:
        self.spend("rollout")

    def after_update(self, final: bool = False) -> None:
        kept, settings = self.run, self.run.settings
        require_home(kept.folder, self.home)
        self.spend("policy")  # and the critic, which is trained together with it
        interrupted = False
        if final or kept.owes_evaluation:
            interrupted = not kept.evaluate(FINAL_EPISODES if final else settings.eval_episodes, self.stop)
            self.spend("evaluation")
        last = kept.curve[-1][0] if kept.curve else 0
        recorded = final or kept.steps >= last + CURVE_STEPS
        if recorded and last < kept.steps:  # or it was written before an evaluation was interrupted
            kept.curve.append(kept.curve_row())
            kept.times.append([kept.steps, *kept.seconds.values()])
        stopping, final = self.stop(), final and not interrupted
        if final or stopping or time.perf_counter() - self.saved > records.CHECKPOINT_SECONDS:
            kept.save()
            self.saved = time.perf_counter()
        if recorded:  # after the checkpoint, from which they can be made again
            kept.write_results()
        if stopping and not final:
            raise Stopped

    def _on_step(self) -> bool:
        return True


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser("geonpg.scripts.runs.baseline", description=__doc__)
    parser.add_argument("--algorithm", help=", ".join(zoo.ALGORITHMS))
    parser.add_argument("--settings", default="default", help=" or ".join(zoo.SETTINGS))
    parser.add_argument("--env", metavar="ID")
    parser.add_argument("--seed", type=seed, default=0)
    for key in BUDGET:
        parser.add_argument(f"--{key.replace('_', '-')}", type=count, default=FIELDS[key].default)
    parser.add_argument("--folder", type=Path, help="of a new run")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with a run, bit for bit")
    arguments = parser.parse_args(argv)
    new = [arguments.algorithm, arguments.env, arguments.folder]
    if arguments.resume is None and None in new:
        parser.error("name --algorithm, --env and --folder, or a run to go on with by --resume")
    return arguments


def prepared(arguments: Namespace) -> AbstractContextManager[BaselineRun]:
    """The run that was asked for, with its folder locked."""
    if arguments.resume:
        return alone(arguments.resume, partial(resume, arguments.resume, arguments.env))
    budget = {key: getattr(arguments, key) for key in BUDGET}
    config = config_of(arguments.algorithm, arguments.settings, arguments.env, budget)
    plan = Baseline(arguments.env, arguments.seed, config)
    return alone(arguments.folder, partial(begin, plan, arguments.folder))


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    try:
        with listening() as signals, prepared(arguments) as current:
            if current.is_complete:
                current.write_results()  # some may have been lost
            else:
                current.train(stop=signals)
            return 0
    except Stopped:
        return 128 + signals.received
    except (Refused, OSError, BrokenEnvironment) as error:
        print(f"{getattr(error, 'frames', '')}geonpg.scripts.runs.baseline: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

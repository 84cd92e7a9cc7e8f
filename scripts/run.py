"""One training run in one folder: begins, goes on after a kill bit for bit, and leaves readable results.

config.toml      every setting          run.json         environment, seed, versions, git revision
curve.csv        the learning curve     evaluations.csv  deterministic evaluations
times.csv        seconds by phase       best.ckpt, final.ckpt   policies with their normalisation
checkpoints/     the whole state        events.out.…     TensorBoard
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import HParam, Logger, TensorBoardOutputFormat
from torch.utils.tensorboard import SummaryWriter

from geonpg.agents import ACKTR
from geonpg.agents.checkpoint import CheckpointError, Checkpoints, write
from geonpg.agents.state import get_state, set_state
from geonpg.configs import Settings, load, to_toml
from geonpg.scripts.artifacts import Table, write_text
from geonpg.scripts.building import evaluate, make_agent, make_env, normalization_of, prepare

CHECKPOINT_SECONDS = 5.0  # between two checkpoints, so that a kill loses less than ten
CURVE_EVERY = 10  # updates per row of the learning curve
FINAL_EPISODES = 20

CURVE = ("steps", "return", "length", "kl", "entropy", "explained_variance", "value_loss", "rejected")
EVALUATIONS = ("steps", "mean", "std", "returns")
TIMES = ("steps", "seconds", "rollout", "values", "policy", "critic", "evaluation")


class Stopped(Exception):
    """The run was asked to stop; its state is saved."""


@dataclass(frozen=True)
class Plan:
    """What a run is, before it has done anything."""

    env_id: str
    seed: int
    settings: Settings
    preset: str = "default"
    device: str = "cpu"

    @property
    def name(self) -> str:
        return f"{self.env_id.replace('/', '-')}_{Path(self.preset).stem}_{self.settings.method}_{self.seed}"

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with; the number of steps may change."""
        return {**asdict(self.settings), "env": self.env_id, "seed": self.seed, "steps": None}


def versions() -> dict[str, str]:
    packages = ("geonpg", "torch", "numpy", "gymnasium", "mujoco", "stable-baselines3")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def git_revision() -> str:
    """Of the source that runs; empty outside a repository."""
    where = Path(__file__).resolve().parent
    command = ["git", "-C", str(where), "describe", "--always", "--dirty", "--abbrev=40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def begin(plan: Plan, folder: Path) -> "Run":
    """A new run. Everything that can be wrong is found before its folder appears, which does so whole."""
    if folder.exists():
        raise ValueError(f"{folder} exists: go on with it by --resume {folder}, or choose another folder by --folder")
    run = Run(plan, folder)
    facts: dict[str, Any] = {"env": plan.env_id, "seed": plan.seed, "preset": plan.preset, "device": plan.device}
    create(folder, config_of(plan), facts)
    return run


def create(folder: Path, config: str, facts: Mapping[str, Any]) -> None:
    """The folder of a run, with its config.toml and run.json."""
    facts = {**facts, "versions": versions(), "git": git_revision()}
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        write_text(temporary / "config.toml", config)
        write_text(temporary / "run.json", json.dumps(facts, indent=1))
        os.replace(temporary, folder)
    except OSError as error:  # names the folder that was meant
        raise OSError(error.errno, error.strerror, str(folder)) from error
    finally:
        rmtree(temporary, ignore_errors=True)


def config_of(plan: Plan) -> str:
    return f'description = "{plan.name}"\n' + to_toml(plan.settings)


def plan_of(folder: Path) -> Plan:
    """The plan of a run that has begun."""
    try:
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        settings = load(str(folder / "config.toml"))
        return Plan(facts["env"], facts["seed"], settings, facts["preset"], facts["device"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} is no run folder: {error}") from None


def resume(folder: Path, steps: int | None = None) -> "Run":
    """The run in a folder, at its last good checkpoint; to `steps` steps instead of those it was begun for."""
    plan = plan_of(folder)
    begun_for = plan.settings.steps
    if steps is not None:
        plan = replace(plan, settings=replace(plan.settings, steps=steps))
    run = Run(plan, folder)
    found = run.checkpoints.latest()
    if found is not None:
        run.restore(*found)
    if plan.settings.steps != begun_for:
        if plan.settings.steps <= run.steps:
            raise ValueError(f"{folder} has made {run.steps} steps already: --steps must be more, not {steps}")
        write_text(folder / "config.toml", config_of(plan))
    for leftover in folder.glob(".*.tmp"):  # of a process that was killed while it wrote
        leftover.unlink()
    return run


class Run:
    """A plan, an agent, and what has come of them so far."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        prepare(plan.settings)
        self.plan, self.folder = plan, folder
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.env = make_env(plan.settings, plan.env_id, plan.settings.n_envs, plan.seed)
        self.agent: ACKTR = make_agent(plan.settings, self.env, plan.seed, plan.device)
        self.curve: list[list[float]] = []
        self.evaluations: list[list[Any]] = []
        self.times: list[list[float]] = []
        self.seconds = dict.fromkeys(TIMES[1:], 0.0)
        self.exact = True

    @property
    def steps(self) -> int:
        return int(self.agent.num_timesteps)

    @property
    def is_complete(self) -> bool:
        return (self.folder / "final.ckpt").exists() and self.steps >= self.plan.settings.steps

    def restore(self, path: Path, state: dict[str, Any]) -> None:
        if state.get("identity") != self.plan.identity:
            raise CheckpointError(f"{path} belongs to another run, or {self.folder / 'config.toml'} was changed")
        self.exact = set_state(self.agent, state["agent"])
        self.curve, self.evaluations, self.times = state["curve"], state["evaluations"], state["times"]
        self.seconds = state["seconds"]

    def save(self) -> None:
        history = {"curve": self.curve, "evaluations": self.evaluations, "times": self.times, "seconds": self.seconds}
        identity = {"identity": self.plan.identity}
        self.checkpoints.save(self.steps, {"agent": get_state(self.agent), **history, **identity})

    def train(self, watch: Callable[["Run"], None], stop: Callable[[], bool]) -> None:
        """To the end, or until `stop()`. `watch` is called after every update."""
        keeper = Keeper(self, watch, stop)
        self.agent.set_logger(self._logger())
        left = self.plan.settings.steps - self.steps
        if left > 0:
            self.agent.learn(left, callback=keeper, reset_num_timesteps=self.steps == 0)
        keeper.after_update(final=True)
        self.agent.logger.dump(self.steps)
        self.env.close()

    def model(self) -> dict[str, Any]:
        """The policy with its normalisation and what is needed to build it; no times, so that equal runs are equal."""
        normalization = normalization_of(self.env)
        return {
            "env": self.plan.env_id,
            "settings": asdict(self.plan.settings),
            "steps": self.steps,
            "policy": self.agent.policy.state_dict(),
            "normalization": normalization.observation_moments.get_state() if normalization else None,
        }

    def evaluate(self, episodes: int) -> None:
        started = time.perf_counter()
        normalization = normalization_of(self.env)
        returns = evaluate(self.agent, self.plan.settings, self.plan.env_id, episodes, normalization, self.plan.seed)
        best = max((row[1] for row in self.evaluations), default=-np.inf)
        mean = float(returns.mean())
        self.evaluations.append([self.steps, mean, float(returns.std()), [float(r) for r in returns]])
        if mean > best:
            write(self.folder / "best.ckpt", self.model())
        self.agent.logger.record("eval/mean_reward", mean)
        self.seconds["evaluation"] += time.perf_counter() - started

    def _logger(self) -> Logger:
        """SB3's, into the run's folder; what was logged after the checkpoint is taken back."""
        board = TensorBoardOutputFormat(str(self.folder))
        board.writer.close()
        board.writer = SummaryWriter(str(self.folder), purge_step=self.steps or None)
        logger = Logger(str(self.folder), [board])
        logger.record("hparams", HParam(hyperparameters(self.plan), {"eval/mean_reward": 0, "rollout/ep_rew_mean": 0}))
        return logger


def write_tables(folder: Path, curve: Sequence[Any], evaluations: Sequence[Any], times: Sequence[Any]) -> None:
    shown = [[*row[:3], " ".join(map(repr, row[3]))] for row in evaluations]
    for name, columns, rows in (("curve", CURVE, curve), ("evaluations", EVALUATIONS, shown), ("times", TIMES, times)):
        write_text(folder / f"{name}.csv", Table(name, name, columns, rows).csv())


def hyperparameters(plan: Plan) -> dict[str, Any]:
    """As TensorBoard's table takes them."""
    values = {key: str(v) if isinstance(v, tuple) else v for key, v in asdict(plan.settings).items()}
    return {"env": plan.env_id, "seed": plan.seed, **values}


class Keeper(BaseCallback):
    """Looks after a run between updates: curve, evaluations, checkpoints, stopping."""

    def __init__(self, run: Run, watch: Callable[[Run], None], stop: Callable[[], bool]) -> None:
        super().__init__()
        self.run, self.watch, self.stop = run, watch, stop
        self.before = dict(run.seconds)
        self.began = self.saved = time.perf_counter()
        self.fresh = True  # no update has been made since the run was begun or restored

    def _on_rollout_start(self) -> None:
        if not self.fresh:
            self.after_update()
        self.fresh = False

    def after_update(self, final: bool = False) -> None:
        run, settings = self.run, self.run.plan.settings
        phases = run.agent.seconds
        run.seconds |= {name: self.before[name] + phases.get(name, 0.0) for name in TIMES[2:-1]}
        run.seconds["seconds"] = self.before["seconds"] + time.perf_counter() - self.began
        due = run.evaluations[-1][0] + settings.eval_every if run.evaluations else settings.eval_every
        if final or run.steps >= due:
            run.evaluate(FINAL_EPISODES if final else settings.eval_episodes)
        if final or run.agent._n_updates % CURVE_EVERY == 0:
            run.curve.append(curve_row(run.agent))
            run.times.append([run.steps, *run.seconds.values()])
            write_tables(run.folder, run.curve, run.evaluations, run.times)
        stopping = self.stop()
        if final:  # before the checkpoint, which says that nothing is left to do
            write(run.folder / "final.ckpt", run.model())
        if final or stopping or time.perf_counter() - self.saved > CHECKPOINT_SECONDS:
            run.save()
            self.saved = time.perf_counter()
        self.watch(run)
        if stopping and not final:
            raise Stopped

    def _on_step(self) -> bool:
        return True


def curve_row(agent: ACKTR) -> list[float]:
    """One row of the learning curve, from the last update."""
    assert agent.ep_info_buffer is not None
    episodes, values = agent.ep_info_buffer, agent.logger.name_to_value
    returns = float(np.mean([e["r"] for e in episodes])) if episodes else float("nan")
    lengths = float(np.mean([e["l"] for e in episodes])) if episodes else float("nan")
    logged = [float(values[f"train/{name}"]) for name in ("explained_variance", "value_loss")]
    kl, rejected = agent.optimizer.report.actual_kl, agent.optimizer.rejected
    return [int(agent.num_timesteps), returns, lengths, kl, -float(values["train/entropy_loss"]), *logged, rejected]

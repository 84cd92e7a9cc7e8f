"""One training run in one folder: begins, goes on after a kill bit for bit, and leaves readable results.

config.toml      every setting          run.json         environment, seed, versions, git revision
curve.csv        the learning curve     evaluations.csv  deterministic evaluations
times.csv        seconds by phase       best.ckpt, final.ckpt   policies with their normalisation
checkpoints/     the whole state        events.out.…     TensorBoard
"""

from geonpg.errors import Refused
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import HParam, Logger, TensorBoardOutputFormat
from stable_baselines3.common.vec_env import VecEnv
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from geonpg.agents import ACKTR
from geonpg.agents.checkpoint import (
    CheckpointError,
    Checkpoints,
    OtherRun,
    expecting,
    from_bytes,
    to_bytes,
    write,
)
from geonpg.agents.forms import misfit
from geonpg.agents.state import OWN, form_of, get_state, set_state
from geonpg.kfac import Ranks
from geonpg.kfac.ranks import ALONE
from geonpg.files import write_text
from geonpg.scripts.runs.building import evaluate, make_agent, make_env, normalization_of, prepare
from geonpg.scripts.runs.facts import create, facts_of, warn_of_best, warn_of_changes
from geonpg.scripts.runs.keeper import Keeper
from geonpg.scripts.runs.process import cores
from geonpg.scripts.runs.memory import check_memory
from geonpg.scripts.runs.plan import Plan, config_of, plan_of
from geonpg.scripts.runs.folder import (
    DONE,
    HISTORY,
    TIMES,
    Stopped,
    contradiction,
    first_difference,
    holds,
    recorded_env,
    require_state,
    stopping_at,
    tables_of,
    write_tables,
)


def begin(plan: Plan, folder: Path, ranks: Ranks = ALONE) -> "Run":
    """A new run. Everything that can be wrong is found before its folder appears, which does so whole."""
    if ranks.rank == 0 and folder.exists():
        raise Refused(f"{folder} exists: choose another folder")
    run = Run(plan, folder, ranks)
    if ranks.rank > 0:
        return run
    facts: dict[str, Any] = {"env": plan.env_id, "seed": plan.seed, "preset": plan.preset, "device": plan.device}
    create(folder, config_of(plan), facts)
    return run


def resume(folder: Path, steps: int | None = None, ranks: Ranks = ALONE, env_id: str | None = None) -> "Run":
    """The run in a folder, at its last good checkpoint; to `steps` steps instead of those it was begun for.

    `env_id`: the environment as the user names it, which must be the run's own.
    """
    plan = plan_of(folder)
    recorded_env(plan.env_id, env_id, folder)
    begun_for = plan.settings.steps
    if steps is not None:
        plan = replace(plan, settings=replace(plan.settings, steps=steps))
    run = Run(plan, folder, ranks)
    run.extended = steps is not None
    if run.checkpoints.latest(run.restore) is None:
        require_state(folder)
    if ranks.rank == 0:
        warn_of_changes(facts_of(folder))
        warn_of_best(folder, run.evaluations, run.steps)
    if plan.settings.steps != begun_for:
        if plan.settings.steps <= run.steps:
            raise Refused(f"{folder} has made {run.steps} steps already: --steps must be more, not {steps}")
        if run.steps > 0:
            run.save()
        if ranks.rank == 0:
            (folder / DONE).unlink(missing_ok=True)  # there is more to do again
            write_text(folder / "config.toml", config_of(plan))
    # of a process that was killed while it wrote
    for leftover in [*folder.glob(".*.tmp"), *folder.glob("checkpoints/.*.tmp")] if ranks.rank == 0 else ():
        leftover.unlink(missing_ok=True)
    return run


class Run:
    """A plan, an agent, and what has come of them so far."""

    def __init__(self, plan: Plan, folder: Path, ranks: Ranks = ALONE) -> None:
        prepare(plan.settings)
        self.plan, self.folder, self.ranks = plan, folder, ranks
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.env, self.agent = shared_agent(plan, ranks)
        self.curve: list[list[float]] = []
        self.evaluations: list[list[Any]] = []
        self.times: list[list[float]] = []
        self.seconds = dict.fromkeys(TIMES[1:], 0.0)
        self.exact = True
        self.extended = False  # by the user, to another number of steps than it was begun for

    @property
    def steps(self) -> int:
        return int(self.agent.num_timesteps)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train; the evaluation at the end comes before the last checkpoint."""
        return (
            self.steps >= self.plan.settings.steps and bool(self.evaluations) and self.evaluations[-1][0] == self.steps
        )

    @property
    def is_complete(self) -> bool:
        """Whether it is finished and all of its results are there as they should be."""
        if not self.is_finished:
            return False
        tables = tables_of(self.curve, self.evaluations, self.times)
        due = {name: text.encode() for name, text in tables.items()} | {"final.ckpt": to_bytes(self.model())}
        return all(holds(self.folder / name, data) for name, data in due.items())

    def write_results(self, final: bool) -> None:
        """What follows from the state: the tables and, at the end, the model."""
        if self.ranks.rank > 0:
            return
        write_tables(self.folder, self.curve, self.evaluations, self.times)
        if final:
            write(self.folder / "final.ckpt", self.model())

    def restore(self, path: Path, state: dict[str, Any]) -> None:
        """Go on from a checkpoint. After a CheckpointError the run is at its beginning again."""
        self.check_identity(path, state)
        try:
            with expecting(path):
                self.set_state(path, state)
        except CheckpointError:
            self.env.close()
            self.env, self.agent = shared_agent(self.plan, self.ranks)
            raise

    def check_identity(self, path: Path, state: dict[str, Any]) -> None:
        kept, ours = state.get("identity"), self.plan.identity
        other = f"{path} belongs to another run, or {self.folder / 'config.toml'} was changed"
        if not isinstance(kept, dict):
            raise OtherRun(f"{other}: it does not say what run it is of")
        if foreign := [key for key in kept if key not in ours]:
            raise OtherRun(f"{path} is not of this version, which knows no setting {', '.join(map(str, foreign))}")
        if difference := first_difference(kept, ours, no_matter=()):
            raise OtherRun(f"{other}: {difference}")
        planned, asked = state.get("planned"), self.plan.settings.steps
        if planned not in (None, asked) and not self.extended:
            raise OtherRun(f"{other}: it was to make {planned} steps, not {asked}; name one of them by --steps")

    def set_state(self, path: Path, state: dict[str, Any]) -> None:
        # an earlier version kept the environments only of each rank, which is all there is of a single one
        own = state["ranks"] if "ranks" in state else [{"env": env} for env in state["envs"]]
        if len(own) != self.ranks.size:
            raise OtherRun(f"{path} was made by {len(own)} processes: go on with as many")
        if "ranks" not in state and len(own) > 1:
            raise OtherRun(f"{path} is of an earlier version, which did not keep what each process saw last")
        agent = {**state["agent"], **own[self.ranks.rank]}
        history = {name: state[name] for name in HISTORY}
        wrong = misfit(agent, form_of(self.agent, agent), "agent") or misfit(history, HISTORY, "history")
        wrong = wrong or contradiction(history, self.plan.settings, agent["counters"]["num_timesteps"])
        if wrong:
            raise CheckpointError(f"{path} is not of this version: {wrong}")
        self.exact = set_state(self.agent, agent)
        self.curve, self.evaluations, self.times = history["curve"], history["evaluations"], history["times"]
        self.seconds = history["seconds"]

    def save(self) -> None:
        history = {"curve": self.curve, "evaluations": self.evaluations, "times": self.times, "seconds": self.seconds}
        identity = {"identity": self.plan.identity, "planned": self.plan.settings.steps}
        agent = get_state(self.agent)
        ranks = of_all_ranks(self.ranks, {key: agent.pop(key) for key in OWN})
        if self.ranks.rank == 0:
            self.checkpoints.save(self.steps, {"agent": agent, "ranks": ranks, **history, **identity})

    def train(self, watch: Callable[["Run"], None], stop: Callable[[], bool]) -> None:
        """To the end, or until `stop()`. `watch` is called after every update."""
        if self.is_finished:  # and some of its results were lost
            self.write_results(final=True)
            return
        keeper = Keeper(self, watch, stop)
        self.agent.set_logger(self._logger())
        left = self.plan.settings.steps - self.steps
        if left > 0:  # or only its last evaluation is
            # the keeper logs, after updates; SB3 would do so before them
            self.agent.learn(left, callback=keeper, log_interval=sys.maxsize, reset_num_timesteps=self.steps == 0)
        keeper.after_update(final=True)
        self.env.close()
        # threads of the process group that still hold a tensor of Python's would abort an interpreter that ends
        self.ranks.gather()

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

    @property
    def owes_evaluation(self) -> bool:
        """Whether an evaluation is due, after an update or because it was interrupted."""
        return self.steps >= (self.evaluations[-1][0] if self.evaluations else 0) + self.plan.settings.eval_every

    def evaluate(self, episodes: int, stop: Callable[[], bool]) -> bool:
        """Whether it came to its end before `stop()`; otherwise there is no trace of it."""
        if self.ranks.rank > 0:  # the first one evaluates for all
            self.evaluations.append([self.steps, float("nan"), float("nan"), []])
            return True
        started, plan, like = time.perf_counter(), self.plan, normalization_of(self.env)
        try:
            returns, lengths = evaluate(
                self.agent, plan.settings, plan.env_id, episodes, like, plan.seed, stopping_at(stop)
            )
        except Stopped:
            return False
        best = max((row[1] for row in self.evaluations), default=-np.inf)
        mean = float(returns.mean())
        self.evaluations.append([self.steps, mean, float(returns.std()), [float(r) for r in returns]])
        if mean > best:
            write(self.folder / "best.ckpt", self.model())
        self.agent.logger.record("eval/mean_reward", mean)
        self.agent.logger.record("eval/mean_ep_length", float(lengths.mean()))
        self.seconds["evaluation"] += time.perf_counter() - started
        return True

    def _logger(self) -> Logger:
        """SB3's, into the run's folder; what was logged after the checkpoint is taken back."""
        if self.ranks.rank > 0:
            return Logger(None, [])
        board = TensorBoardOutputFormat(str(self.folder))
        if self.steps:
            take_back(board, after=self.steps)
        logger = Logger(str(self.folder), [board])
        logger.record("hparams", HParam(hyperparameters(self.plan), {"eval/mean_reward": 0, "rollout/ep_rew_mean": 0}))
        return logger


def take_back(board: TensorBoardOutputFormat, after: int) -> None:
    """Tell TensorBoard to forget points after this step, which a process made that was killed before it saved."""
    assert board.writer.file_writer is not None
    board.writer.file_writer.add_event(Event(step=after + 1, file_version="brain.Event:2"))
    board.writer.file_writer.add_event(Event(step=after + 1, session_log=SessionLog(status=SessionLog.START)))


def shared_agent(plan: Plan, ranks: Ranks) -> tuple[VecEnv, ACKTR]:
    """The agent, with this rank's share of the environments and their seeds."""
    settings = plan.settings
    if ranks.size > 1 and settings.env_threads == 0:
        settings = replace(settings, env_threads=cores())
    if settings.n_envs % ranks.size:
        raise Refused(f"n_envs must be a multiple of the {ranks.size} processes, not {settings.n_envs}")
    own = settings.n_envs // ranks.size
    env = make_env(settings, plan.env_id, own, plan.seed)
    check_memory(settings, env)
    agent = make_agent(settings, env, plan.seed, plan.device, ranks)
    env.seed(plan.seed + ranks.rank * own)  # an agent seeds its environments as if they were all there are
    normalization = normalization_of(env)
    if normalization is not None and ranks.size > 1:
        normalization.everyone = lambda own: [x.numpy() for x in ranks.collected(torch.from_numpy(own))]
    return env, agent


def of_all_ranks(ranks: Ranks, own: dict[str, Any]) -> list[dict[str, Any]]:
    """Every rank's own part of the state."""
    if ranks.size == 1:
        return [own]
    data = torch.frombuffer(bytearray(to_bytes(own)), dtype=torch.uint8)
    return [from_bytes(rows.numpy().tobytes()) for rows in ranks.rows(data)]


def hyperparameters(plan: Plan) -> dict[str, Any]:
    """As TensorBoard's table takes them."""
    values = {key: str(v) if isinstance(v, tuple) else v for key, v in asdict(plan.settings).items()}
    return {"env": plan.env_id, "seed": plan.seed, **values}

"""One training run in one folder (see folder.py), which resumes after a kill bit for bit."""

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Generic

import torch
from stable_baselines3.common.logger import Logger

from geonpg.agents.checkpoint import CheckpointError, Checkpoints, OtherRun, expecting, from_bytes, to_bytes, write
from geonpg.agents.forms import misfit
from geonpg.agents.state import OWN, form_of, get_state, set_state
from geonpg.errors import require
from geonpg.files import write_text
from geonpg.kfac import ALONE, Ranks
from geonpg.scripts.common.stopping import Stopped, stopping_at
from geonpg.scripts.runs import folder as files
from geonpg.scripts.runs.building import normalization_of
from geonpg.scripts.runs.evaluation import evaluate_policy
from geonpg.scripts.runs.events import events_logger
from geonpg.scripts.runs.facts import create, facts_of, warn_of_best, warn_of_changes
from geonpg.scripts.runs.folder import Evaluation, config_difference
from geonpg.scripts.runs.history import FINAL_EPISODES, FORM, History
from geonpg.scripts.runs.keeper import Keeper
from geonpg.scripts.runs.plan import Agent, Plan
from geonpg.scripts.runs.process import prepare
from geonpg.scripts.runs.recorded import plan_of, require_same
from geonpg.scripts.runs.trust import recorded_env


def unwatched(run: "Run[Any]") -> None:
    """Do nothing: the default of `Run.train(watch=...)`."""


class Run(Generic[Agent]):
    """A plan with its environments, its agent, and everything recorded so far.

    Start with `Run.begin` or `Run.resume`, then call `train`.
    """

    def __init__(self, plan: Plan[Agent], folder: Path, ranks: Ranks = ALONE) -> None:
        prepare(plan.settings)
        self.plan, self.folder, self.ranks = plan, folder, ranks
        self.checkpoints = Checkpoints(folder / files.CHECKPOINTS)
        self.env, self.agent = plan.make(ranks)
        self.history = History()
        self.exact = True  # False after its environments could not be restored

    @classmethod
    def begin(cls, plan: Plan[Agent], folder: Path, ranks: Ranks = ALONE) -> "Run[Agent]":
        """Begin a run; raise Refused before the folder appears if anything is wrong."""
        require(ranks.rank > 0 or not folder.exists(), f"{folder} exists: choose another folder")
        run = cls(plan, folder, ranks)
        if ranks.rank == 0:
            create(folder, plan.config, plan.facts)
        return run

    @classmethod
    def resume(
        cls, folder: Path, steps: int | None = None, ranks: Ranks = ALONE, env_id: str | None = None
    ) -> "Run[Any]":
        """Resume the run in a folder from its last good checkpoint.

        steps: train to this number of steps instead of the one it was begun with.
        env_id: the environment as named by the user, which must be the run's own.
        """
        plan = plan_of(folder)
        recorded_env(plan.env_id, env_id, folder)
        run: Run[Any] = cls(plan if steps is None else plan.for_steps(steps), folder, ranks)
        if run.checkpoints.latest(partial(run.restore, of_any_length=steps is not None)) is None:
            files.require_state(folder)
        if ranks.rank == 0:
            run.warn()
        if run.plan != plan:
            run.extend()
        if ranks.rank == 0:
            files.remove_leftovers(folder)
        return run

    @classmethod
    def begin_or_resume(cls, plan: Plan[Agent], folder: Path, advice: str = "choose another folder") -> "Run[Agent]":
        """Begin the run, or resume it if its folder exists; raise Refused, with advice, if another run is there."""
        if not folder.exists():
            return cls.begin(plan, folder)
        require_same(folder, plan, advice)
        return cls.resume(folder, env_id=plan.env_id)

    def warn(self) -> None:
        """Warn of everything that may keep a resumed run from ending as it would have."""
        warn_of_changes(facts_of(self.folder))
        if not self.plan.only_tables:
            warn_of_best(self.folder, self.history.best, self.steps)
        if not self.exact:
            logging.warning("these environments cannot be restored: they begin new episodes")

    def extend(self) -> None:
        """Record that the run now trains to the number of steps in its plan."""
        wanted = self.plan.settings.steps
        made = f"{self.folder} has made {self.steps} steps already"
        require(wanted > self.steps, f"{made}: --steps must be more, not {wanted}")
        if self.steps > 0:
            self.save()
        if self.ranks.rank == 0:
            (self.folder / files.DONE).unlink(missing_ok=True)  # there is more to do again
            write_text(self.folder / files.CONFIG, self.plan.config)

    @property
    def steps(self) -> int:
        """Environment steps made so far."""
        return int(self.agent.num_timesteps)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train or evaluate."""
        return self.steps >= self.plan.settings.steps and self.history.evaluated == self.steps

    @property
    def is_complete(self) -> bool:
        """Whether the run is finished and all its results are present and correct."""
        if not self.is_finished:
            return False
        due = {name: text.encode() for name, text in self.history.tables()}
        due |= {} if self.plan.only_tables else {files.FINAL: to_bytes(self.model())}
        return all(files.holds(self.folder / name, data) for name, data in due.items())

    @property
    def owes_evaluation(self) -> bool:
        """Whether an evaluation is due, after an update or because the last one was interrupted."""
        return self.steps >= self.history.evaluated + self.plan.settings.eval_every

    def write_results(self, final: bool) -> None:
        """Write the tables and, at the end, the final model."""
        if self.ranks.rank > 0:
            return
        self.history.write(self.folder)
        if final and not self.plan.only_tables:
            write(self.folder / files.FINAL, self.model())

    def restore(self, path: Path, state: dict[str, Any], of_any_length: bool = False) -> None:
        """Continue from a checkpoint; after a CheckpointError the run is as new.

        of_any_length: accept a checkpoint of a run with another number of steps.
        """
        self._check_identity(path, state, of_any_length)
        try:
            with expecting(path):
                self._set_state(path, state)
        except CheckpointError:
            self.env.close()
            self.env, self.agent = self.plan.make(self.ranks)
            raise

    def _check_identity(self, path: Path, state: dict[str, Any], of_any_length: bool) -> None:
        kept, ours = state.get("identity"), self.plan.identity
        other = f"{path} belongs to another run, or {self.folder / files.CONFIG} was changed"
        if not isinstance(kept, dict):
            raise OtherRun(f"{other}: it does not say what run it is of")
        if foreign := [key for key in kept if key not in ours]:
            raise OtherRun(f"{path} is not of this version, which knows no setting {', '.join(map(str, foreign))}")
        if difference := config_difference(kept, ours, no_matter=("steps",)):
            raise OtherRun(f"{other}: {difference}")
        # an earlier version kept the steps that a baseline was to make in its identity
        planned, asked = state.get("planned", kept.get("steps")), self.plan.settings.steps
        if planned not in (None, asked) and not of_any_length:
            raise OtherRun(f"{other}: it was to make {planned} steps, not {asked}; name one of them by --steps")

    def _set_state(self, path: Path, state: dict[str, Any]) -> None:
        own = parts_by_rank(state)
        if len(own) != self.ranks.size:
            raise OtherRun(f"{path} was made by {len(own)} processes: go on with as many")
        if "ranks" not in state and len(own) > 1:
            raise OtherRun(f"{path} is of an earlier version, which did not keep what each process saw last")
        agent = {**state["agent"], **own[self.ranks.rank]}
        kept = {name: state[name] for name in FORM}
        wrong = misfit(agent, form_of(self.agent, agent), "agent") or misfit(kept, FORM, "history")
        if not wrong:
            history = History.of_state(kept)
            wrong = history.contradiction(self.plan.settings, agent["counters"]["num_timesteps"])
        if wrong:
            raise CheckpointError(f"{path} is not of this version: {wrong}")
        self.exact = set_state(self.agent, agent)
        self.history = history

    def save(self) -> None:
        """Write a checkpoint of the whole state."""
        identity = {"identity": self.plan.identity, "planned": self.plan.settings.steps}
        agent = get_state(self.agent)
        ranks = of_all_ranks(self.ranks, {key: agent.pop(key) for key in OWN})
        if self.ranks.rank == 0:
            self.checkpoints.save(self.steps, {"agent": agent, "ranks": ranks, **self.history.state(), **identity})

    def train(self, stop: Callable[[], bool], watch: Callable[["Run[Any]"], None] = unwatched) -> None:
        """Train to the end, or raise Stopped after `stop()` is true. `watch` is called after every update."""
        if self.is_finished:  # and some of its results were lost
            self.write_results(final=True)
            return
        keeper = Keeper(self, watch, stop)
        silent = self.plan.only_tables or self.ranks.rank > 0
        self.agent.set_logger(Logger(None, []) if silent else events_logger(self.plan, self.folder, self.steps))
        left = self.plan.settings.steps - self.steps
        if left > 0:  # or only its last evaluation is
            # the keeper logs, after updates; SB3 would do so before them
            self.agent.learn(left, callback=keeper, log_interval=sys.maxsize, reset_num_timesteps=self.steps == 0)
        keeper.after_update(final=True)
        self.env.close()
        # threads of the process group that still hold a tensor of Python's would abort an interpreter that ends
        self.ranks.gather()

    def evaluate(self, final: bool, stop: Callable[[], bool]) -> bool:
        """Evaluate the policy; return False, with nothing recorded, if `stop()` interrupted it."""
        if self.ranks.rank > 0:  # the first one evaluates for all
            self.history.evaluations.append(Evaluation(self.steps, float("nan"), float("nan"), []))
            return True
        started, plan, best = time.perf_counter(), self.plan, self.history.best
        episodes, like = FINAL_EPISODES if final else plan.settings.eval_episodes, normalization_of(self.env)
        try:
            returns, lengths = evaluate_policy(
                self.agent, plan.settings, plan.env_id, episodes, like, plan.seed, stopping_at(stop)
            )
        except Stopped:
            return False
        found = Evaluation(self.steps, float(returns.mean()), float(returns.std()), [float(r) for r in returns])
        self.history.evaluations.append(found)
        if not plan.only_tables and (best is None or found.mean > best.mean):
            write(self.folder / files.BEST, self.model())
        self.agent.logger.record("eval/mean_reward", found.mean)
        self.agent.logger.record("eval/mean_ep_length", float(lengths.mean()))
        self.history.seconds["evaluation"] += time.perf_counter() - started
        return True

    def model(self) -> dict[str, Any]:
        """Return the policy with its normalisation and all that is needed to rebuild it; equal runs have equal ones."""
        normalization = normalization_of(self.env)
        return {
            "env": self.plan.env_id,
            "settings": asdict(self.plan.settings),
            "steps": self.steps,
            "policy": self.agent.get_parameters()["policy"],  # of an update that is complete
            "normalization": normalization.observation_moments.get_state() if normalization else None,
        }


def parts_by_rank(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the part of a checkpoint that belongs to each rank."""
    if "ranks" in state:
        return list(state["ranks"])
    # earlier versions kept the environments of each rank only, and of a baseline all with its agent
    return [{"env": env} for env in state["envs"]] if "envs" in state else [{}]


def of_all_ranks(ranks: Ranks, own: dict[str, Any]) -> list[dict[str, Any]]:
    """Collect every rank's own part of the state."""
    if ranks.size == 1:
        return [own]
    data = torch.frombuffer(bytearray(to_bytes(own)), dtype=torch.uint8)
    return [from_bytes(rows.numpy().tobytes()) for rows in ranks.rows(data)]

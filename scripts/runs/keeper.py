"""Looks after a run between updates: curve, evaluations, checkpoints, stopping."""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from geonpg.agents import ACKTR
from geonpg.scripts.runs import folder as records
from geonpg.scripts.runs.facts import inode, require_home
from geonpg.scripts.runs.folder import CURVE_EVERY, FINAL_EPISODES, TIMES, Stopped

if TYPE_CHECKING:
    from geonpg.scripts.runs.run import Run


class Keeper(BaseCallback):
    """Looks after a run between updates: curve, evaluations, checkpoints, stopping."""

    def __init__(self, run: "Run", watch: Callable[["Run"], None], stop: Callable[[], bool]) -> None:
        super().__init__()
        self.run, self.watch, self.stop = run, watch, stop
        self.before = dict(run.seconds)
        self.began = time.perf_counter()
        self.saved = -math.inf if run.steps == 0 else self.began  # a checkpoint comes before the first results
        self.home = inode(run.folder)
        self.fresh = True  # no update has been made since the run was begun or restored

    def _on_rollout_start(self) -> None:
        if not self.fresh or self.run.owes_evaluation:
            self.after_update()
        self.fresh = False

    def after_update(self, final: bool = False) -> None:
        """What is due now. Every rank knows what it is, and the first one writes it down."""
        run, settings, ranks = self.run, self.run.plan.settings, self.run.ranks
        if ranks.rank == 0:
            require_home(run.folder, self.home)
        phases = run.agent.seconds
        run.seconds |= {name: self.before[name] + phases.get(name, 0.0) for name in TIMES[2:-1]}
        run.seconds["seconds"] = self.before["seconds"] + time.perf_counter() - self.began
        evaluating, interrupted = final or run.owes_evaluation, False
        recording = final or run.agent._n_updates % CURVE_EVERY == 0
        if evaluating:
            interrupted = ranks.any(not run.evaluate(FINAL_EPISODES if final else settings.eval_episodes, self.stop))
        recorded = bool(run.curve) and run.curve[-1][0] == run.steps  # before an evaluation that was interrupted
        if recording and not recorded:
            run.curve.append(curve_row(run.agent))
            run.times.append([run.steps, *run.seconds.values()])
        if self.fresh:  # an evaluation was made again: the rest was logged before
            run.agent.logger.dump(run.steps)
        elif evaluating or recording:
            run.agent.dump_logs()
        stopping, final = ranks.any(self.stop()), final and not interrupted
        late = time.perf_counter() - self.saved > records.CHECKPOINT_SECONDS
        if final or stopping or ranks.any(late):
            run.save()
            self.saved = time.perf_counter()
        if recording:  # after the checkpoint, from which they can be made again
            run.write_results(final)
        self.watch(run)
        if stopping and not final:
            raise Stopped

    def _on_step(self) -> bool:
        return True


def curve_row(agent: ACKTR) -> list[float]:
    """One row of the learning curve, from the last update."""
    assert agent.ep_info_buffer is not None
    assert agent.last_update is not None
    episodes, update = agent.ep_info_buffer, agent.last_update
    returns = float(np.mean([e["r"] for e in episodes])) if episodes else float("nan")
    lengths = float(np.mean([e["l"] for e in episodes])) if episodes else float("nan")
    step = update.report.actual_kl, update.entropy
    critic = update.explained_variance, update.value_loss
    return [int(agent.num_timesteps), returns, lengths, *step, *critic, update.rejected]

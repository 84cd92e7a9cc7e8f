"""What happens between the updates of a run: curve, evaluations, checkpoints, stopping."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stable_baselines3.common.callbacks import BaseCallback

from geonpg.scripts.common.stopping import Stopped
from geonpg.scripts.common.timer import Timer
from geonpg.scripts.runs.folder import inode, require_home
from geonpg.scripts.runs.history import PHASES

if TYPE_CHECKING:
    from geonpg.scripts.runs.run import Run

CHECKPOINT_SECONDS = 5.0  # between two checkpoints, so that a kill loses less than ten


class Keeper(BaseCallback):
    """A callback for SB3 that does whatever is due between two updates of a run.

    watch: called after every update.
    stop: asked after every update; if true the run saves its state and raises Stopped.
    """

    sees_steps = False  # so that rollouts may be one call
    sees_updates = False  # what it saves, logs and evaluates waits for the critic

    def __init__(self, run: "Run[Any]", watch: Callable[["Run[Any]"], None], stop: Callable[[], bool]) -> None:
        super().__init__()
        self.run, self.watch, self.stop = run, watch, stop
        self.before = dict(run.history.seconds)
        self.measured = {"rollout": 0.0, "policy": 0.0}
        self.began = self.lap = time.perf_counter()
        self.checkpoint = Timer(due=run.steps == 0)  # a checkpoint comes before the first results
        self.home = inode(run.folder)
        self.fresh = True  # no update has been made since the run was begun or restored

    def _on_rollout_start(self) -> None:
        if not self.fresh or self.run.owes_evaluation:
            self.after_update()
        self.fresh = False
        self.lap = time.perf_counter()

    def _on_rollout_end(self) -> None:
        self._measure("rollout")

    def _on_step(self) -> bool:
        return True

    def after_update(self, final: bool = False) -> None:
        """Do what is due. Every rank decides the same; rank 0 writes the files."""
        run, ranks, history = self.run, self.run.ranks, self.run.history
        if ranks.rank == 0:
            require_home(run.folder, self.home)
        self._count_seconds()
        evaluating, interrupted = final or run.owes_evaluation, False
        recording = final or run.plan.owes_row(run.agent, history.recorded)
        if evaluating:
            interrupted = ranks.any(not run.evaluate(final, self.stop))
        if recording and history.recorded < run.steps:  # or it was, before an evaluation that was interrupted
            history.record(run.plan.curve_row(run.agent))
        if self.fresh:  # an evaluation was made again: the rest was logged before
            run.agent.logger.dump(run.steps)
        elif evaluating or recording:
            run.agent.dump_logs()
        stopping, final = ranks.any(self.stop()), final and not interrupted
        if final or stopping or ranks.any(self.checkpoint.is_due(CHECKPOINT_SECONDS)):
            run.save()
            self.checkpoint.restart()
        if recording:  # after the checkpoint, from which they can be made again
            run.write_results(final)
        self.watch(run)
        if stopping and not final:
            raise Stopped

    def _measure(self, phase: str) -> None:
        """Add the time since the last call, or since the rollout began, to this phase."""
        now = time.perf_counter()
        self.measured[phase] += now - self.lap
        self.lap = now

    def _count_seconds(self) -> None:
        """Add the seconds of this process to those of the processes before it."""
        if not self.fresh:
            self._measure("policy")
        phases = self.run.plan.seconds(self.run.agent, self.measured)
        told = {name: phases.get(name, 0.0) for name in PHASES if name not in ("seconds", "evaluation")}
        spent = {"seconds": time.perf_counter() - self.began, **told}
        self.run.history.seconds |= {name: self.before[name] + seconds for name, seconds in spent.items()}

"""The files that a run writes for TensorBoard."""

from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import HParam, Logger, TensorBoardOutputFormat
from tensorboard.compat.proto.event_pb2 import Event, SessionLog

from geonpg.scripts.runs.plan import Plan


def events_logger(plan: Plan[Any], folder: Path, steps: int) -> Logger:
    """Make SB3's logger for the run's folder; points logged after the checkpoint at `steps` are withdrawn."""
    board = TensorBoardOutputFormat(str(folder))
    if steps:
        take_back(board, after=steps)
    logger = Logger(str(folder), [board])
    logger.record("hparams", HParam(hyperparameters(plan), {"eval/mean_reward": 0, "rollout/ep_rew_mean": 0}))
    return logger


def take_back(board: TensorBoardOutputFormat, after: int) -> None:
    """Tell TensorBoard to forget all points after this step, which a process logged that was killed before it saved."""
    assert board.writer.file_writer is not None
    board.writer.file_writer.add_event(Event(step=after + 1, file_version="brain.Event:2"))
    board.writer.file_writer.add_event(Event(step=after + 1, session_log=SessionLog(status=SessionLog.START)))


def hyperparameters(plan: Plan[Any]) -> dict[str, Any]:
    """Return every setting in a form that TensorBoard's table accepts."""
    values = {key: str(value) if isinstance(value, tuple) else value for key, value in plan.values.items()}
    return {"env": plan.env_id, "seed": plan.seed, **values}

"""The numbers of one update: made once, read by the logger, the learning curve and the user."""

import math
from dataclasses import asdict, dataclass

from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import explained_variance
from torch import Tensor

from geonpg.kfac import NaturalGradient, Report


@dataclass(frozen=True)
class UpdateStats:
    """The numbers of one update of policy and critic."""

    n_updates: int  # made so far, this one included
    policy_loss: float  # of the surrogate before the step, without the entropy bonus
    value_loss: float  # mean squared error of the critic before its first step
    entropy: float  # of the policy before the step, mean over the batch
    explained_variance: float  # of the returns, by the values before the update; 1 is a perfect critic
    report: Report  # the instruments of the policy's natural-gradient step
    rejected: int  # steps of the policy that were rejected so far
    std: float | None  # mean standard deviation of the actions after the step; None without one in the policy

    def record(self, logger: Logger) -> None:
        """Record every number under SB3's keys, and the instruments of the step under `geometry/`."""
        report = self.report
        logger.record("train/n_updates", self.n_updates, exclude="tensorboard")
        logger.record("train/explained_variance", self.explained_variance)
        logger.record("train/entropy_loss", -self.entropy)
        logger.record("train/policy_loss", self.policy_loss)
        logger.record("train/value_loss", self.value_loss)
        logger.record("train/approx_kl", report.actual_kl)
        logger.record("train/rejected", self.rejected)
        if self.std is not None:
            logger.record("train/std", self.std)
        for name, value in asdict(report).items():
            if not math.isnan(value):
                logger.record(f"geometry/{name}", float(value))
        if report.accepted and report.predicted_kl > 0:
            logger.record("geometry/actual_over_predicted_kl", report.actual_kl / report.predicted_kl)


def policy_stats(
    n_updates: int,
    policy_loss: float,
    entropy: float,
    buffer: RolloutBuffer,
    optimizer: NaturalGradient,
    log_std: Tensor | None,
) -> UpdateStats:
    """Collect the numbers of an update whose critic is not fitted yet: its loss is not known."""
    return UpdateStats(
        n_updates=n_updates,
        policy_loss=policy_loss,
        value_loss=math.nan,
        entropy=entropy,
        explained_variance=float(explained_variance(buffer.values.ravel(), buffer.returns.ravel())),
        report=optimizer.report,
        rejected=optimizer.rejected,
        std=None if log_std is None else float(log_std.detach().exp().mean()),
    )

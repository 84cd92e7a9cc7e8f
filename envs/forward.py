"""What tasks of moving forwards share."""

from .physics import Array, Constants, Simulation, clipped, helper, progress
from .task import GymTask


@helper
def put(out: Array, at: int, part: Array) -> int:
    """Copy numbers into an observation from a place on; return the place behind them."""
    for i in range(len(part)):
        out[at + i] = part[i]
    return at + len(part)


@helper
def put_clipped(out: Array, at: int, part: Array, low: float, high: float) -> int:
    """Copy numbers into an observation, brought between bounds; return the place behind them."""
    for i in range(len(part)):
        out[at + i] = clipped(part[i], low, high)
    return at + len(part)


@helper
def healthy_reward(k: Constants, healthy: bool) -> float:
    """Return the reward for being healthy; v4 pays it for a last, unhealthy step too."""
    return k.healthy_reward if healthy or (k.terminates != 0 and k.v5 == 0) else 0.0


@progress
def first_coordinate(sim: Simulation, k: Constants) -> float:
    """Return the x coordinate."""
    return sim.qpos[0]


class Locomotion(GymTask):
    """Forward velocity, control cost, and observations that may leave the first positions out."""

    skipped = 1  # positions that `exclude_current_positions_from_observation` leaves out

    def constants(self) -> dict[str, float]:
        """Return weights, and the first position that is observed."""
        reference = self.reference
        excluded = getattr(reference, "_exclude_current_positions_from_observation", True)
        return {
            **super().constants(),
            "first": float(self.skipped if excluded else 0),
            "forward_weight": float(getattr(reference, "_forward_reward_weight", 1.0)),
            "control_weight": float(getattr(reference, "_ctrl_cost_weight", 0.0)),
            "healthy_reward": float(getattr(reference, "_healthy_reward", 0.0)),
            "terminates": float(getattr(reference, "_terminate_when_unhealthy", False)),
        }

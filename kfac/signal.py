"""Whether fresh batches confirm the direction that was taken before them."""

import math
from dataclasses import dataclass

RATE = 0.1  # how far one batch, as clear as most, moves the logarithm of the share
CLEAREST = 3.0  # a batch counts for no more than so many
MEMORY = 0.95  # decay of the average that says how clear most batches are
LEAST_SHARE = 0.01  # of a step: its instruments go on telling what it would do


@dataclass(frozen=True)
class Signal:
    """The share of its full length that a step has earned, by the slopes that fresh batches found along the last one.

    Along a direction that still leads down, fresh batches find descent on average, and the share stays near one. Along
    one that is all noise they find descent and ascent in turn, and the share wanders down; along one that has gone
    too far they find ascent, and it falls. This is the gradient of the loss by the logarithm of the step size
    (hypergradient descent, Baydin et al. 2018), in units of its own size.
    """

    log_share: float = 0.0
    power: float = 0.0  # average of squared descents
    weight: float = 0.0  # of that average

    @property
    def share(self) -> float:
        """The share of its full length that a step has earned, in (0, 1]."""
        return math.exp(self.log_share)

    def heard(self, descent: float) -> "Signal":
        """Return the signal after a fresh batch.

        descent: what that batch finds along the last direction, in any unit that stays the same.
        """
        power = MEMORY * self.power + (1 - MEMORY) * descent * descent
        weight = MEMORY * self.weight + (1 - MEMORY)
        usual = math.sqrt(power / weight)
        if not 0 < usual < math.inf:
            return self
        clear = min(max(descent / usual, -CLEAREST), CLEAREST)
        return Signal(min(max(self.log_share + RATE * clear, math.log(LEAST_SHARE)), 0.0), power, weight)

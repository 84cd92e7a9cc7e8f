"""The multiple of the identity that is added to the metric, and how it changes from step to step."""

from dataclasses import dataclass, replace

# A rejected step multiplies the damping; accepted ones bring it back to where it was set.
RAISE, RELAX, MOST = 10.0, 0.8, 1e6


@dataclass(frozen=True)
class Damping:
    """The damping of the next step.

    value: what is added to the metric.
    base: where it was set.
    growth: what Nielsen's rule multiplies it by if the next step is rejected; every rejection in a row doubles that.
    """

    value: float
    base: float
    growth: float = 2.0

    def relaxed(self) -> "Damping":
        """Return the damping after an accepted step, if nothing is known of how good it was."""
        return replace(self, value=max(self.base, RELAX * self.value))

    def raised(self) -> "Damping":
        """Return the damping after a rejected step."""
        return replace(self, value=min(RAISE * max(self.value, 1e-4), MOST))

"""A timer for what is done every few seconds."""

import math
import time


class Timer:
    """Tells when something that is done every few seconds is due again.

    due: whether it is due from the start.
    """

    def __init__(self, due: bool = False) -> None:
        self.latest = -math.inf if due else time.monotonic()

    def is_due(self, seconds: float) -> bool:
        """Return whether so many seconds have passed since the last restart."""
        return time.monotonic() - self.latest >= seconds

    def restart(self) -> None:
        """Start counting again."""
        self.latest = time.monotonic()

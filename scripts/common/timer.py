"""What is done every few seconds."""

import math
import time


class Timer:
    """Tells when something that is done every few seconds is due again.

    due: whether it is due at once, or only after the first of these seconds.
    """

    def __init__(self, due: bool = False) -> None:
        self.latest = -math.inf if due else time.monotonic()

    def is_due(self, seconds: float) -> bool:
        """Whether so many seconds have passed since the last restart."""
        return time.monotonic() - self.latest >= seconds

    def restart(self) -> None:
        """Count from now on."""
        self.latest = time.monotonic()
